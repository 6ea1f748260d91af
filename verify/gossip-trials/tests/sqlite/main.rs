//! Real processes on SQLite files.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "test code")]

mod conformance;
mod power_loss;
mod processes;
mod scripts;
mod support;
