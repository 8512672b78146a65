// How the page reaches the engine: by the server that serves it. `make site` writes another file of this name.
export const MODE = { kind: "served" };
