//! Prints how evenly uneven work is spread, as a table (`cargo xtask makespan`).
//!
//! `makespan [--auto] [--shape NAME] [--keys N] [WORKERS …]` prints a part of the table, to
//! evaluate a change of the split policy.
#![forbid(unsafe_code)]
#![expect(clippy::disallowed_methods, reason = "a program that reads arguments")]

use std::error::Error;
use std::io;
use std::thread::available_parallelism;

use gossip_sim_worker::makespan::{self, Plan, Shape};

/// About ten minutes of work for each of 64 workers.
const KEYS: usize = 16_000;

const WORKERS: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];

fn main() -> Result<(), Box<dyn Error>> {
    let mut plan = Plan {
        keys: KEYS,
        shapes: Vec::new(),
        workers: Vec::new(),
        only_auto: false,
        threads: available_parallelism().map_or(1, |threads| threads.get()),
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--auto" => plan.only_auto = true,
            "--shape" => plan.shapes.push(shape(&words.next().unwrap_or_default())?),
            "--keys" => plan.keys = words.next().unwrap_or_default().parse()?,
            number => plan.workers.push(number.parse()?),
        }
    }
    if plan.shapes.is_empty() {
        plan.shapes = Shape::ALL.to_vec();
    }
    if plan.workers.is_empty() {
        plan.workers = WORKERS.to_vec();
    }
    Ok(makespan::table(&plan, &mut io::stdout())?)
}

fn shape(name: &str) -> Result<Shape, String> {
    let known = Shape::ALL.into_iter().find(|shape| shape.name() == name);
    known.ok_or_else(|| format!("no such shape; {:?} are known", Shape::ALL.map(Shape::name)))
}
