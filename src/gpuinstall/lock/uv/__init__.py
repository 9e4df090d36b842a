"""All that knows uv: what it is given to resolve, what it builds, what its errors mean, where files came from."""
