// Clients from npm against the service: reads JSON from standard input, prints what each call gave or raised.
import { readFileSync } from "node:fs";
import { CohereClient, CohereClientV2 } from "cohere-ai";
import { InferenceClient } from "@huggingface/inference";
import OpenAI from "openai";
import { VoyageAIClient } from "voyageai";

const setup = JSON.parse(readFileSync(0, "utf8"));
const { base, busy, key, model, encoder, encoder_base, query, documents, texts, huge } = setup;
const once = { maxRetries: 0 };
const v1 = new CohereClient({ token: key, environment: base });
const v2 = new CohereClientV2({ token: key, environment: base });
const voyage = new VoyageAIClient({ apiKey: key, environment: `${base}/v1` });
const openai = new OpenAI({ apiKey: key, baseURL: `${base}/v1`, maxRetries: 0 });
const hub = new InferenceClient(key, { endpointUrl: encoder_base });
const cohereRows = (answer) => answer.results.map((row) => [row.index, row.relevanceScore]);
const voyageRows = (answer) => answer.data.map((row) => [row.index, row.relevanceScore]);

const rerank = async ({ from = base, as = key, by = model, given = documents }) =>
  cohereRows(
    await new CohereClientV2({ token: as, environment: from }).rerank({ model: by, query, documents: given }, once),
  );
const untilRaises = async (ask) => {
  for (const ends = Date.now() + 60_000; Date.now() < ends; ) await ask();
  return "never overloaded";
};

const calls = {
  cohere_ranks: async () => cohereRows(await v2.rerank({ model, query, documents })),
  cohere_top: async () => cohereRows(await v2.rerank({ model, query, documents, topN: 2 })),
  cohere_ranks_v1: async () => cohereRows(await v1.rerank({ model, query, documents, returnDocuments: true })),
  cohere_wrong_key: () => rerank({ as: "not-a-key" }),
  cohere_unknown_model: () => rerank({ by: model.slice(0, -1) }),
  cohere_too_large: () => rerank({ given: ["word ".repeat(huge / 5)] }),
  cohere_nothing: () => rerank({ given: [] }),
  cohere_overloaded: () => untilRaises(() => rerank({ from: busy })),
  voyage_ranks: async () => voyageRows(await voyage.rerank({ model, query, documents })),
  voyage_top: async () => voyageRows(await voyage.rerank({ model, query, documents, topK: 2 })),
  openai_embeds: async () =>
    (await openai.embeddings.create({ model: encoder, input: texts })).data.map((row) => Array.from(row.embedding)),
  openai_models: async () => (await openai.models.list()).data.map((row) => row.id),
  openai_ranks: async () =>
    (await openai.post("/rerank", { body: { model, query, documents } })).results.map((row) => [
      row.index,
      row.relevance_score,
    ]),
  openai_unknown_model: () => openai.post("/rerank", { body: { model: "nobody", query, documents } }),
  hub_embeds_one: () => hub.featureExtraction({ inputs: texts[0] }),
  hub_similar: () =>
    hub.sentenceSimilarity({ inputs: { source_sentence: texts[0], sentences: texts.slice(1) } }),
};

const seen = {};
for (const [name, ask] of Object.entries(calls)) {
  try {
    seen[name] = await ask();
  } catch (error) {
    const status = error.statusCode ?? error.status ?? error.httpResponse?.status ?? null;
    const said = `${error.message} ${JSON.stringify(error.body ?? error.httpResponse?.body ?? "")}`;
    seen[name] = { raised: error.constructor.name, status, message: said.slice(0, 2000) };
  }
}
const lock = JSON.parse(readFileSync(new URL("package.json", import.meta.url), "utf8"));
console.log(`\n${JSON.stringify({ versions: lock.devDependencies, calls: seen })}`);
process.exit(0);
