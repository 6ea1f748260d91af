//! Rounds of many callers in turns, and what they showed.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long a round lasts: a hundred commits of every side that is held to a goal, and several
/// times what 256 callers wait for one, 66 ms on three servers in a slow hour.
const ROUND: Duration = Duration::from_millis(250);

/// A caller that repeats one operation.
pub trait Caller: Send + 'static {
    fn once(&mut self) -> impl Future<Output = ()> + Send;
}

/// What one round showed.
#[derive(Clone, Copy)]
pub struct Round {
    /// Operations.
    pub count: usize,
    /// Operations per second.
    pub rate: f64,
    /// Milliseconds.
    pub p50: f64,
}

/// Lets all callers repeat their operation for a round, and gives them back.
pub async fn together<C: Caller>(callers: Vec<C>) -> (Vec<C>, Round) {
    let over = Arc::new(AtomicBool::new(false));
    let begin = Instant::now();
    let tasks: Vec<_> = callers
        .into_iter()
        .map(|mut caller| {
            let over = Arc::clone(&over);
            tokio::spawn(async move {
                let mut times = Vec::new();
                while !over.load(Ordering::Relaxed) {
                    let start = Instant::now();
                    caller.once().await;
                    times.push(start.elapsed());
                }
                (caller, times)
            })
        })
        .collect();
    tokio::time::sleep(ROUND).await;
    over.store(true, Ordering::Relaxed);
    let (mut back, mut times) = (Vec::new(), Vec::new());
    for task in tasks {
        let (caller, of_caller) = task.await.expect("a caller does not fail");
        back.push(caller);
        times.extend(of_caller);
    }
    let count = times.len();
    let rate = count as f64 / begin.elapsed().as_secs_f64();
    (back, Round { count, rate, p50: median(times.iter().map(millis).collect()) })
}

pub fn millis(time: &Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// The median of the ratios of rounds that were played side by side.
pub fn ratio(one: &[Round], other: &[Round], of: fn(&Round) -> f64) -> f64 {
    median(one.iter().zip(other).map(|(one, other)| of(one) / of(other)).collect())
}

pub fn median(mut values: Vec<f64>) -> f64 {
    assert!(!values.is_empty(), "there is something to take the median of");
    values.sort_unstable_by(f64::total_cmp);
    let (low, high) = (values[(values.len() - 1) / 2], values[values.len() / 2]);
    f64::midpoint(low, high)
}
