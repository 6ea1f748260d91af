//! The one error type of xtask.
//!
//! A person reads it in a terminal, so it answers their three questions in order: what happened,
//! why, and what to type next. Nothing in xtask matches on a failure; there is nothing to match.

use std::fmt;
use std::process::ExitCode;

use crate::EXIT_USAGE;

/// A command that could not do its work.
#[derive(Debug)]
pub(crate) struct Failure {
    what: String,
    why: String,
    next: String,
    code: u8,
}

impl Failure {
    /// What happened, why it happened, and what to type (or do) next.
    pub(crate) fn new(
        what: impl Into<String>,
        why: impl Into<String>,
        next: impl Into<String>,
    ) -> Self {
        Self { what: what.into(), why: why.into(), next: next.into(), code: 1 }
    }

    /// The arguments of `command` make no sense; `why` says which, `usage` how it should look.
    pub(crate) fn usage(command: &str, why: impl Into<String>, usage: &str) -> Self {
        Self {
            code: EXIT_USAGE,
            ..Self::new(
                format!("`cargo xtask {command}` was not started"),
                why,
                format!("cargo xtask {command} {usage}"),
            )
        }
    }

    /// 2 if the command line was at fault, else 1.
    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.code)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "error: {}", self.what)?;
        writeln!(f, "  why:  {}", self.why)?;
        write!(f, "  next: {}", self.next)
    }
}
