//! `sim`: bad days of many workers, played again from a seed. The same room as `cargo xtask sim`.

use std::io::{self, Write as _};
use std::time::Instant;

use gossip_coordination::sim::Simulator;
use gossip_coordination::sim::command::{self, Options, USAGE, Verdict};

use crate::args::SimArgs;
use crate::failure::{Code, Failure};

pub(crate) fn run(args: &SimArgs) -> Result<Code, Failure> {
    let options = Options::parse(&args.words()).ok_or_else(|| {
        Failure::new(Code::Usage, "what the simulator is to do is not understood").next(USAGE)
    })?;
    let begun = Instant::now();
    let mut stdout = io::stdout().lock();
    let simulator = Simulator::new().behind("gossip sim");
    let verdict = command::run_behind(&simulator, &options, &|| begun.elapsed(), &mut stdout);
    match verdict.and_then(|verdict| stdout.flush().map(|()| verdict)) {
        Ok(Verdict::Held) => Ok(Code::Complete),
        Ok(Verdict::Broken) => Ok(Code::Internal),
        // Whoever read has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(Code::Complete),
        Err(error) => {
            Err(Failure::new(Code::Internal, "standard output cannot be written").why(error))
        }
    }
}
