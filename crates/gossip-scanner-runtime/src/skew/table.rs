//! The outcomes of many cases as a table.

use std::io::{self, Write};

use super::{Case, Outcome, Shape, Way, play};

/// The ways of the table, in its order.
const WAYS: [Way; 5] = [Way::Static(1), Way::Static(4), Way::Static(16), Way::Bytes, Way::Auto];

/// Plays every shape with each number of workers in every way, and writes a table of makespan ÷
/// (work / workers), with the splits of the last way and how many were allowed.
///
/// # Errors
///
/// When `out` does not take it.
pub fn table(keys: usize, workers: &[usize], out: &mut dyn Write) -> io::Result<()> {
    out.write_all(HEAD.as_bytes())?;
    for shape in Shape::ALL {
        for &workers in workers {
            out.write_all(row(shape, keys, workers).as_bytes())?;
            out.flush()?;
        }
    }
    Ok(())
}

const HEAD: &str = "\
| source | workers | static ×1 | ×4 | ×16 | byte midpoints (splits) | **auto** | splits | allowed |
|---|---:|---:|---:|---:|---:|---:|---:|---:|
";

fn row(shape: Shape, keys: usize, workers: usize) -> String {
    let outcomes = WAYS.map(|way| play(Case { shape, keys, workers, way }));
    let ratio = |outcome: &Outcome| format!("{:.3}", outcome.ratio(workers));
    let [one, four, sixteen, bytes, auto] = &outcomes;
    format!(
        "| {} | {workers} | {} | {} | {} | {} ({}) | **{}** | {} | {} |\n",
        shape.name(),
        ratio(one),
        ratio(four),
        ratio(sixteen),
        ratio(bytes),
        bytes.splits,
        ratio(auto),
        auto.splits,
        auto.splits_allowed(workers),
    )
}
