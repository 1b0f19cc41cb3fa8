# cmake --install, and find_package(pcg) for its users.
include(CMakePackageConfigHelpers)

set(pcg_config_dir "${CMAKE_INSTALL_LIBDIR}/cmake/pcg")
install(TARGETS pcg EXPORT pcgTargets
        LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}"
        INCLUDES DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
if(TARGET pcg-opt)
  install(TARGETS pcg-opt RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
endif()
install(TARGETS pcg-run RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/pcg"
        DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
        FILES_MATCHING PATTERN "*.h")
install(EXPORT pcgTargets NAMESPACE pcg:: DESTINATION "${pcg_config_dir}")

configure_package_config_file(
  "${PROJECT_SOURCE_DIR}/tools/cmake/pcgConfig.cmake.in"
  "${PROJECT_BINARY_DIR}/pcgConfig.cmake"
  INSTALL_DESTINATION "${pcg_config_dir}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/pcgConfigVersion.cmake"
                                 COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/pcgConfig.cmake"
              "${PROJECT_BINARY_DIR}/pcgConfigVersion.cmake"
        DESTINATION "${pcg_config_dir}")
