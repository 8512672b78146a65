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
  if (event.request.method !== "GET" || new URL(event.request.url).origin !== self.location.origin) return;
  event.respondWith(answer(event.request));
});

async function answer(request) {
  const cache = await caches.open(NAME);
  const kept = await cache.match(request, { ignoreSearch: true });
  if (kept) return kept;
  const fresh = await fetch(request);
  // vocabularies are large and many: they are kept once they were used
  if (fresh.ok && new URL(request.url).pathname.includes("/vocabularies/")) await cache.put(request, fresh.clone());
  return fresh;
}
