// The service worker of the static site: it keeps all files, so that the page opens without a network. The files of one
// build are kept together, and go together when another build is there. files.js is written by `make site`.
importScripts("files.js");

const NAME = `turnwise-${self.VERSION}`;

async function keepFiles() {
  const cache = await caches.open(NAME);
  // "no-cache": what the browser has of another build is not taken for this one
  await cache.addAll(self.FILES.map((file) => new Request(file, { cache: "no-cache" })));
  await self.skipWaiting(); // the next load has this build, whatever other tabs show
}

async function removeOthers() {
  const names = await caches.keys();
  await Promise.all(names.filter((name) => name.startsWith("turnwise-") && name !== NAME).map((name) => caches.delete(name)));
}

self.addEventListener("install", (event) => event.waitUntil(keepFiles()));
self.addEventListener("activate", (event) => event.waitUntil(removeOthers()));
self.addEventListener("fetch", (event) => {
  if (event.request.method !== "GET") return;
  event.respondWith(caches.open(NAME).then(async (cache) => (await cache.match(event.request, { ignoreSearch: true })) ?? fetch(event.request)));
});
