"""Checks JSON against a schema: python check_schema.py SCHEMA JSON.

Knows the words of JSON Schema that the schemas in docs/ use, and refuses a
schema that uses others.
"""

import json
import sys

KNOWN = {"$schema", "$id", "$defs", "$ref", "title", "description", "type",
         "properties", "required", "additionalProperties", "items", "minimum",
         "maximum", "enum"}
TYPES = {"object": dict, "array": list, "string": str, "integer": int,
         "number": (int, float), "null": type(None)}


def check(value, schema, root, path):
    assert set(schema) <= KNOWN, f"words not known: {set(schema) - KNOWN}"
    if "$ref" in schema:
        name = schema["$ref"].removeprefix("#/$defs/")
        return check(value, root["$defs"][name], root, path)
    types = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    assert any(isinstance(value, TYPES[name]) for name in types), \
        f"{path}: expected {types}, found {value!r}"
    if "enum" in schema:
        assert value in schema["enum"], f"{path}: {value!r}"
    if "minimum" in schema:
        assert value >= schema["minimum"], f"{path}: {value!r}"
    if "maximum" in schema:
        assert value <= schema["maximum"], f"{path}: {value!r}"
    if isinstance(value, dict):
        known = schema.get("properties", {})
        missing = set(schema.get("required", ())) - set(value)
        assert not missing, f"{path}: without {missing}"
        if not schema.get("additionalProperties", True):
            extra = set(value) - set(known)
            assert not extra, f"{path}: the schema does not know {extra}"
        for name in known.keys() & value.keys():
            check(value[name], known[name], root, f"{path}.{name}")
    if isinstance(value, list):
        for i, item in enumerate(value):
            check(item, schema["items"], root, f"{path}[{i}]")


with open(sys.argv[1], encoding="utf-8") as file:
    root = json.load(file)
with open(sys.argv[2], encoding="utf-8") as file:
    check(json.load(file), root, root, "report")
print("the report fits the schema")
