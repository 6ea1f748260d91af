//! Real processes on SQLite files.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "test code")]

mod conformance;
mod processes;
mod scripts;
mod support;
