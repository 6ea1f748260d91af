//! `/metrics` in the OpenMetrics format, made at each scrape from the state of the server.
//!
//! No label holds a key, a source or a tenant. Runs are labels, at most [`RUNS_MAX`] of them.

use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _, text};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use crate::app::App;
use crate::wire::RunSummary;

/// Runs with metrics of their own: unfinished ones, then those that ended last.
const RUNS_MAX: usize = 50;

/// States of runs and workers, so that a state without a member is zero and not absent.
const RUN_STATES: [&str; 8] =
    ["initializing", "active", "paused", "incomplete", "done", "failed", "cancelled", "unreadable"];
const WORKER_STATES: [&str; 7] =
    ["working", "idle", "draining", "silent", "ending", "gone", "unknown"];

/// Takes the value of a metric from a run, if it has one.
type OfRun = fn(&RunSummary) -> Option<f64>;

/// Returns the metrics as text.
pub(crate) fn encode(app: &App) -> Result<String, std::fmt::Error> {
    let mut registry = Registry::with_prefix("gossip");
    registry.register_collector(Box::new(Snapshot::of(app)));
    let mut out = String::new();
    text::encode(&mut out, &registry)?;
    Ok(out)
}

/// The values of one scrape.
#[derive(Debug)]
struct Snapshot {
    runs: Vec<RunSummary>,
    run_states: Vec<(&'static str, i64)>,
    worker_states: Vec<(&'static str, i64)>,
    counters: Vec<(&'static str, &'static str, u64)>,
    gauges: Vec<(&'static str, &'static str, f64)>,
}

impl Snapshot {
    fn of(app: &App) -> Self {
        let shared = &app.shared;
        let state = shared.read();
        let mut runs: Vec<RunSummary> =
            state.runs.values().map(|run| run.summary.clone()).collect();
        let of_state = |word: &&'static str| {
            let count = runs.iter().filter(|run| run.status == *word).count();
            (*word, i64::try_from(count).unwrap_or(i64::MAX))
        };
        let run_states = RUN_STATES.iter().map(of_state).collect();
        let workers = &state.workers.workers;
        let of_state = |word: &&'static str| {
            let count = workers.iter().filter(|worker| worker.state == *word).count();
            (*word, i64::try_from(count).unwrap_or(i64::MAX))
        };
        let worker_states = WORKER_STATES.iter().map(of_state).collect();
        let slow = workers.iter().filter(|worker| worker.is_slow).count();
        let store = state.store.clone();
        drop(state);
        runs.sort_by_key(|run| (run.is_over, std::cmp::Reverse(run.completed_at)));
        runs.truncate(RUNS_MAX);
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (counters, pace) = (&shared.counters, shared.pace.counted());
        Self {
            runs,
            run_states,
            worker_states,
            counters: vec![
                ("serve_requests", "HTTP requests", of(&counters.requests)),
                ("serve_refused", "HTTP requests refused by a check", of(&counters.refused)),
                ("serve_errors", "HTTP requests answered with 5xx", of(&counters.failed)),
                ("serve_actions", "Changes asked for", of(&counters.actions)),
                (
                    "serve_refused_connections",
                    "Connections beyond a limit",
                    of(&counters.refused_connections),
                ),
                ("serve_panics", "Failures of a thread of this server", of(&counters.panics)),
                ("serve_resyncs", "Streams that had to start anew", of(&counters.resyncs)),
                ("store_requests", "Requests of this server to the store", pace.requests),
                ("store_errors", "Failed requests of this server to the store", pace.errors),
                (
                    "takeovers",
                    "Leases seen to pass from one worker to another",
                    of(&counters.takeovers),
                ),
                ("handoffs", "Handoffs seen", of(&counters.handoffs)),
            ],
            gauges: vec![
                ("workers_slow", "Workers below half of the median rate of their run", slow as f64),
                ("serve_connections", "Open connections", of(&counters.connections) as f64),
                ("serve_streams", "Open streams", of(&counters.streams) as f64),
                (
                    "store_readable",
                    "1 if the store can be read",
                    f64::from(u8::from(store.is_readable)),
                ),
                (
                    "store_latency_median_seconds",
                    "Median latency of the last requests",
                    pace.latency_median as f64 / 1e6,
                ),
                (
                    "store_latency_p99_seconds",
                    "99th percentile of the last requests",
                    pace.latency_p99 as f64 / 1e6,
                ),
            ],
        }
    }
}

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        for (name, help, value) in &self.counters {
            let counter = ConstCounter::new(*value);
            let metric = encoder.encode_descriptor(name, help, None, counter.metric_type())?;
            counter.encode(metric)?;
        }
        for (name, help, value) in &self.gauges {
            let gauge = ConstGauge::new(*value);
            let metric = encoder.encode_descriptor(name, help, None, gauge.metric_type())?;
            gauge.encode(metric)?;
        }
        let states = |states: &[(&'static str, i64)]| -> Vec<(&'static str, f64)> {
            states.iter().map(|(word, count)| (*word, *count as f64)).collect()
        };
        family(&mut encoder, "runs", "Runs by status", "status", &states(&self.run_states))?;
        let workers = states(&self.worker_states);
        family(&mut encoder, "workers", "Workers by state", "state", &workers)?;
        let of_runs = |value: OfRun| -> Vec<(&str, f64)> {
            let runs = self.runs.iter();
            runs.filter_map(|run| Some((run.run.as_str(), value(run)?))).collect()
        };
        let families: [(&str, &str, OfRun); 6] = [
            ("run_keys", "Keys done", |run| run.keys.map(|keys| keys as f64)),
            ("run_rate", "Keys per second over ten seconds", |run| run.rate),
            ("run_fraction", "Done fraction", |run| run.fraction),
            ("run_failed_shards", "Parked and damaged shards", |run| {
                run.shards.map(|shards| (shards.parked + shards.damaged) as f64)
            }),
            ("run_waiting_shards", "Shards of an active run that wait for a worker", |run| {
                let is_active = run.status == "active";
                run.shards.filter(|_| is_active).map(|shards| shards.waiting as f64)
            }),
            ("run_unread_items", "Items that could not be read", |run| {
                run.unread.map(|unread| unread as f64)
            }),
        ];
        for (name, help, value) in families {
            family(&mut encoder, name, help, "run", &of_runs(value))?;
        }
        Ok(())
    }
}

/// Encodes gauges that differ in one label.
fn family(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    label: &'static str,
    values: &[(&str, f64)],
) -> Result<(), std::fmt::Error> {
    use prometheus_client::metrics::MetricType;
    let mut metrics = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (value_of_label, value) in values {
        let gauge = ConstGauge::new(*value);
        let labels = [(label, *value_of_label)];
        gauge.encode(metrics.encode_family(&labels)?)?;
    }
    Ok(())
}
