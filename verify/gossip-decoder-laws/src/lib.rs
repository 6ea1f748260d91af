//! What must hold of every decoder of bytes that come from outside, whatever the bytes.
//!
//! A [`Law`] takes any bytes and panics if the decoder does something wrong with them. That the
//! decoder itself never panics is the least; where more can be said it is: what decodes is written
//! the same again, what is refused leaves nothing behind, a second way gives the same answer. It
//! tells whether the decoder took the bytes, because a law about what is taken says nothing where
//! nothing is.
//!
//! The laws are checked in two ways. The targets of `verify/fuzz` run them on inputs that libFuzzer
//! generates, hundreds of millions of them. The tests of this crate run them on their own
//! [seeds](Law::seeds), on inputs near those, and on every input in `verify/fuzz/kept`, in seconds
//! and without any tool.
//!
//! Laws never write files or read clocks, so that an input found once fails again. Nobody depends
//! on this crate but the fuzz targets.
#![forbid(unsafe_code)]

mod connectors;
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

/// What must hold of one decoder.
pub struct Law {
    /// As the fuzz target is called.
    pub name: &'static str,
    /// Shows the decoder these bytes, and tells whether it took them; panics if it does something
    /// wrong.
    pub check: fn(&[u8]) -> bool,
    /// Inputs that get far, to begin with. At least one of them is taken.
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
    number_key: runtime::number_key, seeds::number_keys;
    operation_sequences: operations::sequences, seeds::sequences;
    owner: stored::owner, seeds::owners;
    record_decode: shards::both_parts, seeds::whole_shards;
    run_head: stored::run_head, seeds::run_heads;
    run_roots: stored::run_roots, seeds::run_roots;
    runtime_token: runtime::token, seeds::tokens;
    shard_cold: shards::cold, seeds::cold_shards;
    shard_hot: shards::hot, seeds::hot_shards;
    source_range: typed::source_range, seeds::source_ranges;
    store_key: stored::key, seeds::store_keys;
    store_url: typed::store_url, seeds::store_urls;
    stream_answer: exec::stream_answer, seeds::stream_answers;
    tombstone: stored::tombstone, seeds::tombstones;
    worker: stored::worker, seeds::workers;
}
