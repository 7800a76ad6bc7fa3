// Submit a URL, wait for it, follow it by a stream token, search: node dist/demo.js GATEWAY API_KEY URL QUESTION
import { ApiError, Client, stream } from "./client.js";

declare const process: { argv: string[]; exitCode?: number };

const [gateway, apiKey, url, question] = process.argv.slice(2);
if (!gateway || !apiKey || !url || !question) {
  console.error("node dist/demo.js GATEWAY API_KEY URL QUESTION");
  process.exitCode = 2;
} else {
  const client = new Client(gateway, apiKey);
  try {
    const { job_id } = await client.submit(url, { corpus_name: "demo", priority: 60 });
    const { url: streamUrl } = await client.streamToken(job_id);
    for await (const job of stream(streamUrl, 60_000)) console.error(`${job.status}: ${job.user_message}`);
    const job = await client.wait(job_id, 60_000);
    const { results } = await client.search({ query: question, corpus_name: "demo", top_k: 3 });
    console.log(JSON.stringify({ job, results }, null, 2));
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    const { code, status, request_id, retry_after } = error;
    console.log(JSON.stringify({ code, status, request_id, retry_after }));
    process.exitCode = 1;
  }
}
