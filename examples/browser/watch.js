// Two ways to follow a job from a browser. Neither knows a key: the proxy adds it.

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

const fetchJob = async (jobId) => (await fetch(`/api/orchestrator/jobs/${jobId}`)).json();

// Asking again and again, with growing pauses. Giving up says nothing about the job: it goes on.
const pollJob = async (jobId, updateJobUI) => {
  const delays = [500, 1000, 2000, 3000, 5000, 10000];
  for (let attempt = 0; attempt < 30; attempt++) {
    const job = await fetchJob(jobId);
    updateJobUI(job);
    if (job.status === 'done' || job.status === 'failed') return job;
    await sleep(delays[Math.min(attempt, delays.length - 1)]);
  }
  throw new Error('Job polling timed out');
};

// Being told: the browser comes back by itself after each answer, with the id of the last event it saw.
const streamJob = (jobId, updateJobUI) =>
  new Promise((resolve, reject) => {
    const source = new EventSource(`/api/orchestrator/jobs/${jobId}/stream`);
    source.onmessage = (event) => {
      const job = JSON.parse(event.data);
      updateJobUI(job);
      if (job.status === 'done' || job.status === 'failed') {
        source.close();
        resolve(job);
      }
    };
    // A refusal ends the stream for good; anything else is a pause between two answers.
    source.onerror = () => {
      if (source.readyState === EventSource.CLOSED) reject(new Error('Job stream was refused'));
    };
  });
