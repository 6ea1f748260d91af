//! The runtime: workers that touch every key of a source, and the proof that they did.
#![forbid(unsafe_code)]
