//! Instruction counts of hashing, split planning and cursor updates.
//!
//! Rows named after a criterion benchmark do the same work.

#[path = "../../gossip-stdx/benches/support/driver.rs"]
mod driver;
#[path = "support/payload.rs"]
mod payload;
#[path = "support/splits.rs"]
mod splits;

use std::hint::black_box;
use std::process::ExitCode;

use driver::{Operation, repeat};
use gossip_contracts::coordination::{
    CursorUpdate, PooledCursor, plan_split_replace_at_points_initial_cursor,
    validate_split_coverage,
};
use gossip_stdx::ByteSlab;
use payload::{bare_blocks, payload};
use splits::{children, keys, parent, points, shuffled};

fn main() -> ExitCode {
    let mut operations = Vec::new();
    for (name, cursor, bare_len) in payload::CASES {
        operations.extend(payload_operations(name, cursor, bare_len));
    }
    for count in [2, 16, 256] {
        operations.extend(split_operations(count));
    }
    operations.push(cursor_operation());
    driver::main(operations)
}

fn payload_operations(name: &str, cursor: &'static [u8], bare_len: usize) -> [Operation; 2] {
    [
        Operation::new(format!("{name}/bare keyed blocks"), move |count| {
            let bare = vec![1; bare_len];
            repeat(count, || bare_blocks(black_box(&bare)));
        }),
        Operation::new(format!("{name}/canonical hasher"), move |count| {
            repeat(count, || payload(black_box(cursor)));
        }),
    ]
}

fn split_operations(parts: usize) -> [Operation; 3] {
    [
        Operation::new(format!("split/plan replace, {parts} children"), move |count| {
            let keys = keys(parts + 1);
            let (parent, points) = (parent(&keys), points(&keys));
            repeat(count, || {
                plan_split_replace_at_points_initial_cursor(parent, black_box(&points))
            });
        }),
        Operation::new(format!("split/coverage, {parts} children in order"), move |count| {
            let keys = keys(parts + 1);
            let (parent, specs) = (parent(&keys), children(&keys));
            repeat(count, || validate_split_coverage(parent, black_box(&specs)));
        }),
        Operation::new(format!("split/coverage, {parts} children shuffled"), move |count| {
            let keys = keys(parts + 1);
            let (parent, specs) = (parent(&keys), shuffled(&children(&keys)));
            repeat(count, || validate_split_coverage(parent, black_box(&specs)));
        }),
    ]
}

fn cursor_operation() -> Operation {
    Operation::new("pooled cursor update, key and token", |count| {
        let keys = keys(1024);
        let mut slab = ByteSlab::new(64 * 1024);
        let mut cursor = PooledCursor::initial();
        let mut next = 0;
        repeat(count, || {
            next = (next + 1) % keys.len();
            cursor.update(CursorUpdate::new(&keys[next], b"page 1"), &mut slab)
        });
        cursor.free(&mut slab);
    })
}
