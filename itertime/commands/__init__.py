"""The commands of `itertime`, one module each: options in, the library called, text or JSON out."""
