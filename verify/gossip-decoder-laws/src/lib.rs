//! Properties of every decoder of external bytes, for any input.
//!
//! A [`Law`] takes any bytes and panics if the decoder violates it. The minimal law is that the
//! decoder never panics. Most laws state more: a decoded value encodes to the same bytes, a refused
//! input leaves no state behind, a second implementation gives the same result. A law returns
//! whether the decoder accepted the bytes, because it checks little for refused inputs.
//!
//! The laws are checked in two ways. The targets of `verify/fuzz` run them on inputs that libFuzzer
//! generates, hundreds of millions of them. The tests of this crate run them on their own
//! [seeds](Law::seeds), on inputs near those, and on every input in `verify/fuzz/kept`, in seconds
//! and without any tool.
//!
//! Laws never write files or read clocks, so that a failing input is reproducible. Only the fuzz
//! targets depend on this crate.
//!
//! # Running it
//!
//! `cargo test -p gossip-decoder-laws` checks all laws; `cargo xtask fuzz` runs libFuzzer.
//!
//! # Example
//!
//! ```
//! use gossip_decoder_laws::LAWS;
//!
//! for law in LAWS {
//!     // Returns whether the decoder accepted the bytes; panics if the law is violated.
//!     let _accepted = (law.check)(b"any bytes");
//! }
//! ```
#![forbid(unsafe_code)]

mod connectors;
mod detection;
mod etcd;
mod exec;
mod frontier;
mod input;
mod manifest;
mod operations;
mod runtime;
mod seal;
mod seeds;
mod shards;
mod stored;
mod typed;

#[cfg(test)]
mod laws_tests;

/// A property of one decoder.
pub struct Law {
    /// Name of the fuzz target.
    pub name: &'static str,
    /// Runs the decoder on these bytes and returns whether it accepted them; panics if it violates
    /// the law.
    pub check: fn(&[u8]) -> bool,
    /// Returns seed inputs. At least one of them is accepted.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// Defines [`LAWS`] and, for every law, a function of its name.
macro_rules! laws {
    ($($name:ident: $check:path, $seeds:path;)*) => {
        /// Every law, by name.
        pub const LAWS: &[Law] = &[
            $(Law { name: stringify!($name), check: $check, seeds: $seeds },)*
        ];

        $(
            #[doc = concat!("The law `", stringify!($name), "`.")]
            ///
            /// # Panics
            ///
            /// If it does not hold.
            pub fn $name(data: &[u8]) {
                let _is_taken: bool = $check(data);
            }
        )*
    };
}

laws! {
    certificate: runtime::certificate, seeds::certificates;
    command_template: exec::command_template, seeds::commands;
    counter: stored::counter, seeds::counters;
    etcd_answers: etcd::answers, etcd::seeds;
    event: stored::event, seeds::events;
    hint_decode: frontier::hint, seeds::hints;
    index_entry: stored::index_entry, seeds::index_entries;
    integer_keys: frontier::integer_keys, seeds::integer_keys;
    job: runtime::job, seeds::jobs;
    key_arithmetic: frontier::key_arithmetic, seeds::pairs_of_keys;
    line_file: connectors::line_file, seeds::line_files;
    manifest_rows: connectors::manifest_rows, seeds::manifest_files;
    manifest_validation: manifest::validation, seeds::shard_manifests;
    metadata_decode: frontier::metadata, seeds::hints;
    move_record: typed::move_record, seeds::move_records;
    move_terms: typed::move_terms, seeds::move_terms;
    move_value: stored::move_value, seeds::move_values;
    operation_sequences: operations::sequences, seeds::sequences;
    owner: stored::owner, seeds::owners;
    record_decode: shards::both_parts, seeds::whole_shards;
    row_key: runtime::row_key, seeds::row_keys;
    rule_text: detection::rule_text, detection::rule_texts;
    run_head: stored::run_head, seeds::run_heads;
    run_roots: stored::run_roots, seeds::run_roots;
    runtime_token: runtime::token, seeds::tokens;
    scan_input: detection::scan_input, detection::inputs;
    shard_cold: shards::cold, seeds::cold_shards;
    shard_hot: shards::hot, seeds::hot_shards;
    side_record: stored::side_record, seeds::side_records;
    source_range: typed::source_range, seeds::source_ranges;
    store_key: stored::key, seeds::store_keys;
    store_url: typed::store_url, seeds::store_urls;
    stream_answer: exec::stream_answer, seeds::stream_answers;
    tombstone: stored::tombstone, seeds::tombstones;
    worker: stored::worker, seeds::workers;
}
