//! The one error type of xtask.
//!
//! It is printed to a terminal, so it has three parts in this order: what happened, the cause, and
//! the command to run next. No code in xtask matches on a failure, so it has no variants.

use std::fmt;
use std::process::ExitCode;

use crate::EXIT_USAGE;

/// A command that failed.
#[derive(Debug)]
pub(crate) struct Failure {
    what: String,
    why: String,
    next: String,
    code: u8,
}

impl Failure {
    /// Creates a failure: what happened, the cause, and the command or action that comes next.
    pub(crate) fn new(
        what: impl Into<String>,
        why: impl Into<String>,
        next: impl Into<String>,
    ) -> Self {
        Self { what: what.into(), why: why.into(), next: next.into(), code: 1 }
    }

    /// Creates a failure for invalid arguments of `command`; `why` names them, `usage` shows the
    /// syntax.
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

    /// Returns 2 if the command line was invalid, else 1.
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
