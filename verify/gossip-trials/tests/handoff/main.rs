//! Handoffs between processes, and the handoff record repository on every store.

mod processes;
mod repositories;
