//! Planned moves between real processes, and the records of moves in every real store.

mod processes;
mod repositories;
