//! Instruction counts of range arithmetic, hints and split planning.
//!
//! Rows named after a criterion benchmark do the same work.

#[path = "../../gossip-stdx/benches/support/driver.rs"]
mod driver;
#[path = "support/inputs.rs"]
mod inputs;

use std::hint::black_box;
use std::process::ExitCode;

use driver::{Operation, repeat};
use gossip_contracts::coordination::ShardSpecRef;
use gossip_frontier::{
    KeyBuf, KeyRange, MetadataBuf, ShardHint, ShardMetadata, byte_midpoint, decode_metadata,
    key_successor, prefix_successor, split_points, split_points_by_density,
};
use inputs::{EXTRA, HINTS, KEY_LENS, bounds, pair, sample_keys};

/// Number of parts that a range is split into.
const PARTS: [usize; 2] = [16, 256];

fn main() -> ExitCode {
    let mut operations = Vec::new();
    operations.extend(KEY_LENS.into_iter().flat_map(key_operations));
    for (name, hint) in HINTS {
        operations.extend(hint_operations(name, hint));
    }
    for parts in PARTS {
        operations.extend(KEY_LENS.map(|len| even_operation(parts, len)));
        operations.push(density_operation(parts));
    }
    driver::main(operations)
}

fn key_operations(len: usize) -> [Operation; 3] {
    [
        Operation::new(format!("keys/prefix_successor/{len}"), move |count| {
            let ((key, _), mut buf) = (pair(len), KeyBuf::new());
            repeat(count, || prefix_successor(black_box(&key), &mut buf).map(<[u8]>::len));
        }),
        Operation::new(format!("keys/key_successor/{len}"), move |count| {
            let ((key, _), mut buf) = (pair(len), KeyBuf::new());
            repeat(count, || key_successor(black_box(&key), &mut buf).map(<[u8]>::len));
        }),
        Operation::new(format!("keys/byte_midpoint/{len}"), move |count| {
            let ((a, b), mut buf) = (pair(len), KeyBuf::new());
            repeat(count, || {
                byte_midpoint(black_box(&a), black_box(&b), &mut buf).map(<[u8]>::len)
            });
        }),
    ]
}

fn hint_operations(name: &str, hint: ShardHint<'static>) -> [Operation; 3] {
    let metadata = ShardMetadata::new(hint, &EXTRA);
    [
        Operation::new(format!("hints/encode_hint/{name}"), move |count| {
            let mut buf = MetadataBuf::new();
            repeat(count, || black_box(&hint).encode_into(&mut buf).map(<[u8]>::len));
        }),
        Operation::new(format!("hints/encode/{name}"), move |count| {
            let mut buf = MetadataBuf::new();
            repeat(count, || black_box(&metadata).encode_into(&mut buf).map(<[u8]>::len));
        }),
        Operation::new(format!("hints/decode/{name}"), move |count| {
            let mut buf = MetadataBuf::new();
            let bytes = metadata.encode_into(&mut buf).expect("the metadata fits");
            let spec = ShardSpecRef::new(b"a", b"b", bytes);
            repeat(count, || decode_metadata(black_box(spec)));
        }),
    ]
}

fn even_operation(parts: usize, len: usize) -> Operation {
    Operation::new(format!("split/even_{parts}/{len}"), move |count| {
        let (start, end) = bounds(len);
        let range = KeyRange::try_new(&start, &end).expect("`a` lies before `z`");
        let mut bufs = vec![KeyBuf::new(); parts - 1];
        repeat(count, || {
            split_points(black_box(range), parts, &mut bufs).map(|points| points.len())
        });
    })
}

/// Counts a density split over a hundredth of the larger timed sample, which would take minutes
/// under valgrind.
fn density_operation(parts: usize) -> Operation {
    Operation::new(format!("split/density_sorted_1k/{parts}"), move |count| {
        let keys = sample_keys(1_000);
        let mut sample: Vec<&[u8]> = keys.iter().map(<[u8; 8]>::as_slice).collect();
        let range = KeyRange::WIDEST_UTF8;
        repeat(count, || {
            split_points_by_density(range, parts, &mut sample).map(|points| points.len())
        });
    })
}
