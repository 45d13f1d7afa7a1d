"""Every default value, once. Other modules import them; docs/reference follows from them."""

from __future__ import annotations

from typing import Final

# Settings: each has an environment variable of the same name in ``outlive.settings``.

#: A file in the current folder: needs no server and no configuration.
STORE_FILE: Final = "outlive.db"
STORE_URL: Final = f"sqlite:///{STORE_FILE}"
#: Longer than a pause of the garbage collector or a short network failure, short enough that a
#: dead worker's runs continue soon.
LEASE_SECONDS: Final = 15.0
#: A look for work costs one indexed query; nobody notices a quarter of a second.
POLL_SECONDS: Final = 0.25
#: Shorter waits are cheaper in memory than leaving it and replaying the run.
IDLE_SECONDS: Final = 2.0
IDLE_MS: Final = round(IDLE_SECONDS * 1000)
#: Process managers commonly send SIGKILL 30 seconds or more after SIGTERM.
DRAIN_SECONDS: Final = 30.0
#: Retention rules count in days: once a minute is often enough.
RETAIN_SECONDS: Final = 60.0
#: uvloop where it is installed, otherwise the standard event loop.
LOOP: Final = "auto"

# Flows, steps and effects.

#: The version of a flow that declares none.
FLOW_VERSION: Final = "1"
#: Most HTTP clients give up earlier; an effect without any limit could stay in doubt for ever.
EFFECT_TIMEOUT_SECONDS: Final = 60.0
#: An open transaction keeps locks, so it gets less time than other effects.
TRANSACTION_TIMEOUT_SECONDS: Final = 30.0
#: How long a receiver may take to show what it received, before "not there" is believed.
SETTLE_AFTER_SECONDS: Final = 5.0
#: A check asks a receiver, like an effect: the same limit.
CHECK_TIMEOUT_SECONDS: Final = EFFECT_TIMEOUT_SECONDS
#: With the pauses below five attempts take about 15 seconds: enough for a server's restart.
RETRY_ATTEMPTS: Final = 5
RETRY_DELAY: Final = "1s"
RETRY_FACTOR: Final = 2.0
RETRY_DELAY_MAX: Final = "1m"
#: Enough to keep an API busy, few enough for its connection pool.
MAP_LIMIT: Final = 100

# Published values and streams.

#: A published value is durable after this time at the latest: five commits per second at most.
PUBLISH_SECONDS: Final = 0.2
#: They are shown in lists of runs: a number, a word, a line.
PUBLISHED_BYTES_MAX: Final = 1024
#: Of one run; with more, the oldest are dropped.
PUBLISHED_NAMES_MAX: Final = 32
#: Of a tag's name or value: any store can index it.
TAG_CHARS_MAX: Final = 500

#: Chunks of a stream are written together: nobody reads faster, and 600 tokens at one per 8 ms
#: cost a third of the CPU that a commit for each takes.
STREAM_SECONDS: Final = 0.05
STREAM_BATCH_BYTES: Final = 4096
STREAM_CHUNK_BYTES_MAX: Final = 64 * 1024
#: Of one stream in one chapter; and how much of a run's streams may wait for a slow store.
STREAM_BYTES_MAX: Final = 16 * 1024 * 1024
STREAM_BACKLOG_BYTES: Final = 1024 * 1024
STREAMS_MAX: Final = 100
STREAM_NAME_CHARS_MAX: Final = 100

# Schedules.

#: Without a zone a schedule has no repeated and no missing hours.
SCHEDULE_TIME_ZONE: Final = "UTC"
#: An instant that was missed by more than five minutes is usually of no use any more.
SCHEDULE_MISSED: Final = "skip"
#: Runs of different instants are independent unless somebody says otherwise.
SCHEDULE_OVERLAP: Final = "allow"

# Queues, workers and threads.

#: Providers usually state their rate limits per minute.
RATE_PER: Final = "1m"
RATE_MS: Final = 60_000
#: Runs that one worker drives at a time; most of them wait for something.
WORKER_CONCURRENCY: Final = 100
#: Threads for plain (``def``) bodies: they mostly wait for a network.
BODY_THREADS: Final = 64
#: A cleanup on the user's loop, which the flow waits for: closing a session takes less.
CLEANUP_SECONDS: Final = 30.0
#: Threads that read a store which does not say how many it can use.
LANE_THREADS: Final = 2

# Reading.

#: Runs on one page of ``find``.
FIND_LIMIT: Final = 100
#: What counts of runs go up to.
COUNTED_MAX: Final = 10_000
#: How often a handle asks the store about a run that is driven elsewhere.
HANDLE_POLL_SECONDS: Final = 0.25

# Retention.

#: Longer than callers usually repeat a request with the same id.
ID_WINDOW: Final = "90d"
ID_WINDOW_MS: Final = 90 * 86_400_000
#: Checkpoints of ended runs, when ``cleanup_old`` is not told otherwise.
CHECKPOINTS_OLDER_THAN: Final = "7d"

# Values.

#: Higher levels take half as long again, and save nothing on texts of some kilobytes.
ZSTD_LEVEL: Final = 1

# PostgreSQL.

#: One statement; a longer one is stuck behind a lock or a network.
STATEMENT_SECONDS: Final = 30.0
#: A failover of a managed server takes less.
OUTAGE_SECONDS: Final = 60.0

# Jobs.

#: Jobs: left between the last moment for a result and the escrow's deadline; the time before it in
#: which the payment service sends nothing to the chain; how long after its deadline a payment is
#: looked for; how long a delivery is watched; how often a payment is looked at in any case.
JOB_MARGIN: Final = "1m"
JOB_SERVICE_MARGIN_SECONDS: Final = 300.0
JOB_GRACE: Final = "10m"
JOB_SETTLED_AFTER: Final = "30m"
JOB_LOOK_EVERY: Final = "5m"
#: How often recovery of a stock app looks, and how long it has a job after its last sign of life.
JOB_POLL_SECONDS: Final = 10.0
JOB_LEASE_SECONDS: Final = 30.0
