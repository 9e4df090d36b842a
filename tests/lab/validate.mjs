// Validate JSON documents with the JSON Schema features that docs/schemas use: node validate.mjs < [{"schema": …, "document": …}, …]
const kind = (value) => (value === null ? "null" : Array.isArray(value) ? "array" : typeof value);

function* errors(schema, value, path) {
  const types = [schema.type ?? []].flat();
  if (types.length && !types.includes(kind(value))) yield `${path} is ${kind(value)}, not ${types}`;
  if (schema.enum && !schema.enum.includes(value)) yield `${path} is none of ${schema.enum}`;
  if ("const" in schema && schema.const !== value) yield `${path} is not ${schema.const}`;
  if (schema.anyOf && schema.anyOf.every((one) => [...errors(one, value, path)].length)) yield `${path} is of no kind`;
  if (kind(value) === "object") {
    for (const key of schema.required ?? []) if (!(key in value)) yield `${path} has no ${key}`;
    for (const [key, inner] of Object.entries(schema.properties ?? {}))
      if (key in value) yield* errors(inner, value[key], `${path}.${key}`);
  }
  if (kind(value) === "array" && schema.items)
    for (const [at, entry] of value.entries()) yield* errors(schema.items, entry, `${path}[${at}]`);
}

let text = "";
for await (const chunk of process.stdin) text += chunk;
const found = JSON.parse(text).flatMap(({ schema, document }) => [...errors(schema, document, schema.title)]);
console.log(JSON.stringify(found));
