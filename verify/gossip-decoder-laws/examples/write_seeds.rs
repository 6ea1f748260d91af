//! Writes the seeds of every law below a directory: `write_seeds DIRECTORY`.
//!
//! A campaign begins with them: `DIRECTORY/LAW/seed-N`.

use std::io::{Error, Result};
use std::path::Path;

use gossip_decoder_laws::{LAWS, Law};

fn main() -> Result<()> {
    let directory = std::env::args_os().nth(1);
    let directory = directory.ok_or_else(|| Error::other("it takes the name of a directory"))?;
    LAWS.iter().try_for_each(|law| write(Path::new(&directory), law))
}

fn write(directory: &Path, law: &Law) -> Result<()> {
    let place = directory.join(law.name);
    std::fs::create_dir_all(&place)?;
    for (number, seed) in (law.seeds)().iter().enumerate() {
        std::fs::write(place.join(format!("seed-{number:03}")), seed)?;
    }
    Ok(())
}
