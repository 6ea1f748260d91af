//! The lines of `/proc/PID/stat`.

/// The fields of a process that are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stat {
    /// Whether it is still more than an exit status that waits to be read.
    pub(crate) is_alive: bool,
    pub(crate) group: u32,
    /// How many threads have not ended. A zombie is its first thread; others may still run.
    pub(crate) threads: u64,
    /// When it was started, in clock ticks since the start of the machine.
    pub(crate) started: u64,
}

/// The fields behind the name that are read, counted from 0.
const STATE: usize = 0;
const GROUP: usize = 2;
const THREADS: usize = 17;
const STARTED: usize = 19;

impl Stat {
    /// Parses a line; `None` if it is none. Does not allocate.
    pub(crate) fn parse(line: &[u8]) -> Option<Self> {
        // The name is in parentheses and may contain any byte, also spaces and parentheses.
        let name_end = line.iter().rposition(|byte| *byte == b')')?;
        let rest = line.get(name_end + 1..)?;
        let fields = || rest.split(|byte| byte.is_ascii_whitespace()).filter(|it| !it.is_empty());
        let state = fields().nth(STATE)?;
        Some(Self {
            is_alive: !matches!(state, b"Z" | b"X" | b"x"),
            group: u32::try_from(number(fields().nth(GROUP)?)?).ok()?,
            threads: number(fields().nth(THREADS)?)?,
            started: number(fields().nth(STARTED)?)?,
        })
    }

    /// Returns whether every thread of the process has ended.
    pub(crate) const fn has_ended(&self) -> bool {
        !self.is_alive && self.threads <= 1
    }
}

/// Parses decimal digits.
pub(crate) fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |number, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    })
}

#[cfg(test)]
mod tests {
    use super::Stat;

    const LINE: &[u8] = b"71 (a ) (b) S 1 70 69 0 -1 4194560 103 0 0 0 0 0 0 0 20 0 1 0 8675309 \
        2936832 225 18446744073709551615\n";

    #[test]
    fn a_name_with_parentheses_does_not_shift_the_fields() {
        let expected = Stat { is_alive: true, group: 70, threads: 1, started: 8_675_309 };
        assert_eq!(Stat::parse(LINE), Some(expected));
    }

    #[test]
    fn a_zombie_is_not_alive() {
        let line = String::from_utf8(LINE.to_vec()).unwrap().replace(") S ", ") Z ");
        assert_eq!(Stat::parse(line.as_bytes()).map(|stat| stat.is_alive), Some(false));
    }

    /// The first thread of a killed process can end while another one is in a system call that
    /// cannot be interrupted.
    #[test]
    fn a_zombie_with_another_thread_has_not_ended() {
        let parsed = |state: &str, threads: &str| {
            let line = String::from_utf8(LINE.to_vec()).unwrap();
            let line = line.replace(") S ", state).replace(" 0 1 0 8675309", threads);
            Stat::parse(line.as_bytes()).unwrap().has_ended()
        };
        assert!(parsed(") Z ", " 0 1 0 8675309"));
        assert!(!parsed(") Z ", " 0 2 0 8675309"));
        assert!(!parsed(") S ", " 0 1 0 8675309"));
    }

    #[test]
    fn a_truncated_line_is_refused() {
        let started = LINE.iter().rposition(|byte| *byte == b')').unwrap() + 20;
        for len in 0..started {
            assert_eq!(Stat::parse(&LINE[..len]), None, "{len}");
        }
    }
}
