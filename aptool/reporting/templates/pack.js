// The data of the page: base64 of gzip of JSON, in script elements, unpacked when first needed.
const unpacked = new Map();

function unpack(id) {
  if (!unpacked.has(id)) unpacked.set(id, read(document.getElementById(id).textContent));
  return unpacked.get(id);
}

async function read(text) {
  const stream = new Blob([bytesOf(text.trim())]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

function bytesOf(text) {
  const characters = atob(text);
  const bytes = new Uint8Array(characters.length);
  for (let i = 0; i < characters.length; i++) bytes[i] = characters.charCodeAt(i);
  return bytes;
}

// Weights are 24-bit numbers; those of a text add up to 2^24 - 1.
function weightsOf(text) {
  const bytes = bytesOf(text);
  const weights = [];
  for (let i = 0; i < bytes.length; i += 3) {
    weights.push(((bytes[i] << 16) | (bytes[i + 1] << 8) | bytes[i + 2]) / 0xffffff);
  }
  return weights;
}
