//! The history of a worker process: a line for each call and each return, written as they happen.
//!
//! A process that is killed leaves calls without a return; so does a reply that was lost. Times are
//! nanoseconds of the monotonic clock, which is one for all processes of a machine and is not
//! changed by the wrong clocks that workers have.
//!
//! ```text
//! > 7 81234 checkpoint 3 2 1500 99 1763449200123      id, time, shard, fence, cursor, op, clock
//! < 7 81299 executed
//! ```

use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::time::{ClockId, clock_gettime};

use super::Names;
use super::linear::{Answer, Effect, Millis, Nanos, Operation, Write};
use crate::Outcome;

/// Returns the time of the monotonic clock, by the system call: a library that changes the clocks
/// of a process has no effect on it.
pub(super) fn monotonic() -> Nanos {
    let time = clock_gettime(ClockId::Monotonic);
    let (seconds, nanos) = (time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs());
    seconds * 1_000_000_000 + nanos
}

/// The file to which one process appends. Lines of different threads do not mix: each is one write
/// to a file that is open for appending.
#[derive(Debug)]
pub(super) struct Log {
    file: File,
    next: AtomicU64,
}

impl Log {
    pub(super) fn create(path: &Path) -> Outcome<Self> {
        let file = File::options().create(true).append(true).open(path)?;
        Ok(Self { file, next: AtomicU64::new(1) })
    }

    /// Notes a call, and returns its id.
    pub(super) fn call(&self, words: impl Display) -> u64 {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        self.line(format_args!("> {id} {} {words}", monotonic()));
        id
    }

    /// Notes the return of a call.
    pub(super) fn end(&self, id: u64, words: impl Display) {
        self.line(format_args!("< {id} {} {words}", monotonic()));
    }

    /// Notes something that is no operation.
    pub(super) fn note(&self, words: impl Display) {
        self.line(format_args!("= 0 {} {words}", monotonic()));
    }

    fn line(&self, line: std::fmt::Arguments<'_>) {
        let line = format!("{line}\n");
        // A history with holes would accept more than happened: better no worker than such a one.
        (&self.file).write_all(line.as_bytes()).expect("the directory of a trial is writable");
    }
}

/// A call of a process.
#[derive(Clone, Debug)]
struct Call {
    time: Nanos,
    words: Vec<String>,
    end: Option<(Nanos, Vec<String>)>,
}

/// The histories of all processes of a trial.
#[derive(Debug, Default)]
pub(super) struct Histories {
    calls: Vec<(usize, Call)>,
    notes: Vec<(usize, Nanos, Vec<String>)>,
}

/// The operations of all processes by shard.
#[derive(Debug)]
pub(super) struct ByShard {
    pub(super) shards: BTreeMap<u64, Vec<Operation>>,
    /// Names of operations that the sequential shard does not have.
    pub(super) others: Vec<String>,
}

/// An operation to which a worker received the store's answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answered {
    pub(super) worker: usize,
    pub(super) call: Nanos,
    pub(super) end: Nanos,
}

impl Histories {
    /// Reads the histories of a world, as far as they were written.
    ///
    /// # Errors
    ///
    /// If a line is malformed.
    pub(super) fn read(directory: &Path, workers: usize) -> Outcome<Self> {
        let mut histories = Self::default();
        for worker in 0..workers {
            let text = fs::read_to_string(directory.join(Names::history(worker)));
            histories.add(worker, &text.unwrap_or_default())?;
        }
        Ok(histories)
    }

    /// Adds the history of one process.
    ///
    /// # Errors
    ///
    /// If a line is malformed.
    pub(super) fn add(&mut self, worker: usize, text: &str) -> Outcome<()> {
        let mut calls = BTreeMap::new();
        for line in text.lines() {
            let mut words = line.split(' ').map(str::to_owned);
            let mut next = || words.next().ok_or_else(|| format!("incomplete line: {line}"));
            let (kind, id, time) = (next()?, next()?.parse::<u64>()?, next()?.parse::<Nanos>()?);
            let words: Vec<String> = words.collect();
            match kind.as_str() {
                ">" => drop(calls.insert(id, Call { time, words, end: None })),
                "<" => {
                    let call = calls.get_mut(&id).ok_or_else(|| format!("no call: {line}"))?;
                    call.end = Some((time, words));
                }
                "=" => self.notes.push((worker, time, words)),
                _ => return Err(format!("not a line of a history: {line}").into()),
            }
        }
        self.calls.extend(calls.into_values().map(|call| (worker, call)));
        Ok(())
    }

    /// Returns how often a worker noted something.
    pub(super) fn notes(&self, worker: usize, word: &str) -> usize {
        let is_it = |(of, _, words): &&(usize, Nanos, Vec<String>)| {
            *of == worker && words.first().is_some_and(|it| it == word)
        };
        self.notes.iter().filter(is_it).count()
    }

    /// Returns by how many milliseconds the clock of a worker was ahead of this one at its start.
    pub(super) fn clock_offset(&self, worker: usize, base: i64) -> Option<i64> {
        let note = self.notes.iter().find(|(of, _, words)| *of == worker && words[0] == "clock")?;
        let (_, time, words) = note;
        let wall: i64 = words.get(1)?.parse().ok()?;
        Some(wall - base - i64::try_from(time / 1_000_000).ok()?)
    }

    /// Returns the operations on each shard.
    ///
    /// # Errors
    ///
    /// If a line is malformed.
    pub(super) fn by_shard(&self) -> Outcome<ByShard> {
        let (mut shards, mut others) = (BTreeMap::<u64, Vec<Operation>>::new(), Vec::new());
        for (worker, call) in &self.calls {
            match read(*worker, call).ok_or_else(|| format!("malformed: {call:?}"))? {
                Read::Of(shard, operation) => shards.entry(shard).or_default().push(operation),
                Read::NoEffect => {}
                Read::Other(name) => others.push(name),
            }
        }
        Ok(ByShard { shards, others })
    }

    /// Returns the operations of all workers that the store answered.
    pub(super) fn answered(&self) -> Vec<Answered> {
        let answered = |(worker, call): &(usize, Call)| {
            let (end, words) = call.end.as_ref()?;
            let is_failed = matches!(words[0].as_str(), "failed" | "unknown");
            (!is_failed).then_some(Answered { worker: *worker, call: call.time, end: *end })
        };
        self.calls.iter().filter_map(answered).collect()
    }

    /// Returns how many operations there are, and how many replies were lost.
    pub(super) fn counts(&self) -> [u64; 2] {
        let is_lost =
            |call: &Call| call.end.as_ref().is_none_or(|(_, words)| words[0] == "unknown");
        let lost = self.calls.iter().filter(|(_, call)| is_lost(call)).count();
        [self.calls.len() as u64, lost as u64]
    }
}

/// What a call means for the shards.
enum Read {
    Of(u64, Operation),
    NoEffect,
    Other(String),
}

/// Returns the meaning of a call; `None` if it is malformed.
fn read(worker: usize, call: &Call) -> Option<Read> {
    let (end, reply) = match &call.end {
        Some((end, words)) if words.first()? != "unknown" => (Some(*end), words.as_slice()),
        Some(_) | None => (None, &[][..]),
    };
    let answer = reply.first().map(String::as_str);
    let operation = |effect| Operation { worker, call: call.time, end, effect };
    let number = |index: usize| call.words.get(index)?.parse::<u64>().ok();
    let replied = |index: usize| reply.get(index)?.parse::<u64>().ok();
    let (name, now) = (call.words.first()?.as_str(), call.words.last()?.parse::<Millis>().ok());
    let refused = |shard, fence| match reply.get(1).map(String::as_str) {
        Some("StaleFence") => Read::Of(shard, operation(Effect::Stale { fence })),
        // Time decides, and not the order of operations; or nothing was changed.
        Some(_) | None => Read::NoEffect,
    };
    Some(match (name, answer) {
        ("acquire", Some("granted")) => {
            let (fence, cursor, deadline) = (replied(1)?, replied(2)?, replied(3)?);
            let effect = Effect::Grant { fence, cursor, deadline, now: now? };
            Read::Of(number(1)?, operation(effect))
        }
        ("acquire", None) => Read::Of(number(1)?, operation(Effect::LostGrant)),
        ("renew", Some("renewed")) => {
            let effect = Effect::Renew { fence: number(2)?, deadline: replied(1)?, now: now? };
            Read::Of(number(1)?, operation(effect))
        }
        // A renewal changes the deadline only, which is then later than the history says.
        ("acquire", Some(_)) | ("renew", None) => Read::NoEffect,
        ("renew" | "checkpoint" | "complete" | "release", Some("refused")) => {
            refused(number(1)?, number(2)?)
        }
        ("renew" | "checkpoint" | "complete" | "release", Some("failed")) => Read::NoEffect,
        ("checkpoint" | "complete" | "release", _) => {
            let (shard, fence, cursor, op) = (number(1)?, number(2)?, number(3)?, number(4)?);
            let write = match name {
                "checkpoint" => Write::Checkpoint { cursor },
                "complete" => Write::Complete { cursor },
                _ => Write::Release,
            };
            let answer = match answer {
                Some("executed") => Answer::Executed,
                Some("replayed") => Answer::Replayed,
                Some(_) => return None,
                None => Answer::Lost,
            };
            Read::Of(shard, operation(Effect::Write { fence, op, write, answer }))
        }
        ("other", _) => Read::Other(call.words.get(1)?.clone()),
        _ => return None,
    })
}

#[cfg(test)]
#[path = "history_tests.rs"]
mod tests;
