//! Instruction counts of this crate's operations and of their baselines.
//!
//! Rows named after a criterion benchmark do the same work. Every figure includes `the empty loop`.

#[path = "support/driver.rs"]
mod driver;
#[path = "support/rings.rs"]
mod rings;
#[path = "support/store.rs"]
mod store;

use std::collections::VecDeque;
use std::hint::black_box;
use std::process::ExitCode;

use driver::{Operation, repeat};
use gossip_stdx::{ByteSlab, InlineVec, RingBuffer};
use rings::{CAP, ENTRY, Entry};
use store::{LEN_MAX, Malloc, Sequence, Store, aged, churn, once, replace};

/// As many strings as fit into the first-level cache; an instruction count does not depend on
/// caches, so more would show nothing.
const LIVE: usize = 1_000;

/// As many numbers as fit inline in the vector under test.
const NUMBERS: u64 = 16;

fn main() -> ExitCode {
    let mut operations = vec![Operation::new("the empty loop", |count| {
        repeat(count, || ());
    })];
    operations.extend(store_operations::<ByteSlab>("slab"));
    operations.extend(store_operations::<Malloc>("malloc"));
    operations.extend(ring_operations());
    operations.extend(vector_operations());
    driver::main(operations)
}

fn store_operations<S: Store>(name: &str) -> [Operation; 3] {
    const BYTES: [u8; LEN_MAX] = [2; LEN_MAX];
    let prepare = || {
        let mut sequence = Sequence(LIVE as u64);
        let (store, handles) = aged::<S>(LIVE, &mut sequence);
        (store, handles, sequence)
    };
    [
        Operation::new(format!("churn/{name}/{LIVE}"), move |count| {
            let (mut store, mut handles, mut sequence) = prepare();
            repeat(count, || {
                churn(&mut store, &mut handles, &mut sequence, &BYTES);
            });
        }),
        Operation::new(format!("once/{name}/{LIVE}"), move |count| {
            let (mut store, _handles, _) = prepare();
            repeat(count, || once(&mut store, &BYTES));
        }),
        Operation::new(format!("replace/{name}/{LIVE}"), move |count| {
            let (mut store, mut handles, mut sequence) = prepare();
            repeat(count, || {
                replace(&mut store, &mut handles, &mut sequence, &BYTES);
            });
        }),
    ]
}

fn ring_operations() -> [Operation; 6] {
    [
        Operation::new("push 16, pop 16/ring", |count| {
            let mut ring = RingBuffer::<Entry, CAP>::new();
            repeat(count, || rings::fill_and_empty_ring(&mut ring));
        }),
        Operation::new("push 16, pop 16/deque", |count| {
            let mut deque = VecDeque::with_capacity(CAP);
            repeat(count, || rings::fill_and_empty_deque(&mut deque));
        }),
        Operation::new("overwrite the oldest of 16/ring", |count| {
            let mut ring = rings::full_ring();
            repeat(count, || ring.push_back_overwrite(black_box(ENTRY)));
        }),
        Operation::new("overwrite the oldest of 16/deque", |count| {
            let mut deque = rings::full_deque();
            repeat(count, || rings::overwrite(&mut deque, black_box(ENTRY)));
        }),
        Operation::new("find the newest of 16/ring", |count| {
            let ring = rings::full_ring();
            repeat(count, || rings::find(black_box(&ring).iter()));
        }),
        Operation::new("find the newest of 16/deque", |count| {
            let deque = rings::full_deque();
            repeat(count, || rings::find(black_box(&deque).iter()));
        }),
    ]
}

/// Fills a vector that was created beforehand; neither allocates.
fn vector_operations() -> [Operation; 2] {
    [
        Operation::new("push 16/inline vec", |count| {
            let mut numbers = InlineVec::<u64, { NUMBERS as usize }>::new();
            repeat(count, || {
                let numbers = black_box(&mut numbers);
                numbers.clear();
                (0..NUMBERS).for_each(|number| numbers.push(black_box(number)));
            });
        }),
        Operation::new("push 16/vec", |count| {
            let mut numbers = Vec::with_capacity(NUMBERS as usize);
            repeat(count, || {
                let numbers = black_box(&mut numbers);
                numbers.clear();
                (0..NUMBERS).for_each(|number| numbers.push(black_box(number)));
            });
        }),
    ]
}
