//! `--halt`: stops this process once too many items have failed.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use gossip::runtime::exec::end_all_programs;
use gossip::runtime::{Drain, Event, Observer};

use crate::console::Console;
use crate::failure::Code;
use crate::output::count;

/// Items that are finished at least before a part of them counts: of the first item that fails,
/// all have failed.
const PART_OF_MIN: u64 = 10;

/// When to stop, as it is typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Halt {
    /// Whether running commands are killed.
    now: bool,
    limit: Limit,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Limit {
    Items(NonZeroU64),
    Percent(NonZeroU64),
}

impl Halt {
    /// Parses `soon,fail=3`, `now,fail=10%`.
    pub(crate) fn parse(text: &str) -> Result<Self, &'static str> {
        const EXPECTED: &str = "expected soon,fail=N or now,fail=N, with a number of items or N%";
        let (when, limit) = text.split_once(",fail=").ok_or(EXPECTED)?;
        let now = match when {
            "now" => true,
            "soon" => false,
            _ => return Err(EXPECTED),
        };
        let number = |text: &str| {
            // The parser of the standard library would accept a plus sign.
            let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse().ok().filter(|_: &NonZeroU64| is_plain).ok_or(EXPECTED)
        };
        let limit = match limit.strip_suffix('%') {
            Some(percent) => Limit::Percent(number(percent)?),
            None => Limit::Items(number(limit)?),
        };
        match limit {
            Limit::Percent(percent) if percent.get() > 100 => Err("more than 100 % cannot fail"),
            limit => Ok(Self { now, limit }),
        }
    }

    const fn is_reached(self, failed: u64, done: u64) -> bool {
        let finished = failed.saturating_add(done);
        match self.limit {
            Limit::Items(items) => failed >= items.get(),
            Limit::Percent(percent) => {
                finished >= PART_OF_MIN
                    && failed.saturating_mul(100) >= finished.saturating_mul(percent.get())
            }
        }
    }
}

/// Counts items for `--halt`, and passes events on.
pub(crate) struct Halting<'a> {
    halt: Option<Halt>,
    drain: &'a Drain,
    console: Arc<Console>,
    inner: &'a dyn Observer,
    failed: AtomicU64,
    done: AtomicU64,
    is_reached: AtomicBool,
}

impl<'a> Halting<'a> {
    pub(crate) fn new(
        halt: Option<Halt>,
        drain: &'a Drain,
        console: &Arc<Console>,
        inner: &'a dyn Observer,
    ) -> Self {
        let [failed, done] = [AtomicU64::new(0), AtomicU64::new(0)];
        let (console, is_reached) = (Arc::clone(console), AtomicBool::new(false));
        Self { halt, drain, console, inner, failed, done, is_reached }
    }

    /// Returns how many items had failed when the limit was reached; `None` if it was not.
    pub(crate) fn reached(&self) -> Option<u64> {
        self.is_reached.load(Ordering::SeqCst).then(|| self.failed.load(Ordering::Relaxed))
    }

    fn check(&self) {
        let (failed, done) =
            (self.failed.load(Ordering::Relaxed), self.done.load(Ordering::Relaxed));
        let Some(halt) = self.halt.filter(|halt| halt.is_reached(failed, done)) else { return };
        // Several threads may pass the limit at once; one of them reports and drains.
        if self.is_reached.swap(true, Ordering::SeqCst) {
            return;
        }
        let failed = count(failed, "item");
        if halt.now {
            // As after the second Ctrl-C: a killed command has not failed, so its result must not
            // be recorded.
            end_all_programs();
            self.console.problem(&format!(
                "{failed} failed, stopped (--halt); items in flight are processed again"
            ));
            std::process::exit(i32::from(Code::Incomplete as u8));
        }
        self.console.problem(&format!("{failed} failed: finishing the running commands (--halt)"));
        self.drain.ask();
    }
}

impl Observer for Halting<'_> {
    fn observe(&self, event: Event<'_>) {
        match event {
            // An item that is tried again has not failed yet.
            Event::Failed { again: false, .. } => {
                self.failed.fetch_add(1, Ordering::Relaxed);
            }
            Event::Covered { items, .. } => {
                self.done.fetch_add(items, Ordering::Relaxed);
            }
            _ => {
                self.inner.observe(event);
                return;
            }
        }
        // Before the check, which may end the process: the failure must be printed first.
        self.inner.observe(event);
        self.check();
    }

    fn wants_kernel_events(&self) -> bool {
        self.inner.wants_kernel_events()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_items_or_parts() {
        let halt = |text| Halt::parse(text).unwrap();
        assert!(!halt("soon,fail=2").is_reached(1, 100));
        assert!(halt("soon,fail=2").is_reached(2, 0));
        // One of one is no tenth yet.
        assert!(!halt("now,fail=10%").is_reached(1, 0));
        assert!(halt("now,fail=10%").is_reached(1, 9));
        assert!(!halt("now,fail=10%").is_reached(1, 10));
        assert!(halt("now,fail=10%").now && !halt("soon,fail=10%").now);
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "",
            "soon",
            "never,fail=1",
            "soon,fail=0",
            "now,fail=+1",
            "soon,fail=101%",
            "soon,fail=%",
            "soon,done=3",
            "soon,fail=1.5%",
        ] {
            assert!(Halt::parse(text).is_err(), "{text}");
        }
    }
}
