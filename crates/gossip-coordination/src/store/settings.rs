//! Settings that the URL of every store may have, and how the URL of a server says them:
//! `name=value&name=value`, with values percent-encoded.
//!
//! An error shows nothing of a URL, because a user may have put a password there.

use std::str::FromStr;
use std::time::Duration;

use gossip_stdx::percent_decode;
use thiserror::Error;

/// The longest claim cooldown. A longer one would keep workers idle for no purpose.
pub const CLAIM_COOLDOWN_MAX: Duration = Duration::from_secs(3_600);

/// The default maximum difference between the wall clocks of two machines (DESIGN Q7).
pub const DEFAULT_MAX_CLOCK_SKEW: Duration = Duration::from_secs(2);

/// Parses a whole number with its unit: `ms`, `s` or `m`. Returns `None` for anything else.
#[must_use]
pub fn parse_duration(text: &str) -> Option<Duration> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    // Checked first, because `parse` would accept a sign.
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
    let count: u64 = digits.parse().ok().filter(|_| is_number)?;
    match &text[digits.len()..] {
        "ms" => Some(Duration::from_millis(count)),
        "s" => Some(Duration::from_secs(count)),
        "m" => count.checked_mul(60).map(Duration::from_secs),
        _ => None,
    }
}

/// Returns whole milliseconds, the ticks of a store's clock; the largest number if there are more.
#[must_use]
pub fn ticks(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Why the settings of a URL are invalid. States the position, and never the content.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SettingError {
    /// A part after `?` is not `setting=value`.
    #[error("part {index} behind ? is no setting=value")]
    Pair {
        /// Which one, from zero.
        index: usize,
    },
    /// There is no such setting.
    #[error("part {index} behind ? is no setting that we know")]
    Unknown {
        /// Which one, from zero.
        index: usize,
    },
    /// A setting is given twice.
    #[error("{name} is set twice")]
    SetTwice {
        /// Which one.
        name: &'static str,
    },
    /// A value is not what the setting takes.
    #[error("{name} must be {expected}")]
    Value {
        /// Which setting.
        name: &'static str,
        /// What it takes.
        expected: &'static str,
    },
    /// A certificate without its key, or a key without its certificate.
    #[error("cert and key belong together")]
    HalfIdentity,
    /// A setting of TLS without the authorities, which turn it on.
    #[error("cert, key and server_name need ca, the file of the authorities")]
    NoAuthorities,
    /// Both TLS and clear text are asked for.
    #[error("ca turns TLS on and tls=off turns it off")]
    Contradiction,
}

/// Returns the settings of `query` that are among `names`, in the order of `names`, so that the
/// error of a value does not depend on the order in the URL.
///
/// # Errors
///
/// [`SettingError`] for a part that is no setting, and for unknown and repeated settings.
pub fn settings_of<'u, const N: usize>(
    query: &'u str,
    names: [&'static str; N],
) -> Result<impl Iterator<Item = (&'static str, &'u str)>, SettingError> {
    let mut values: [Option<&str>; N] = [None; N];
    for (index, pair) in query.split('&').filter(|pair| !pair.is_empty()).enumerate() {
        let (name, value) = pair.split_once('=').ok_or(SettingError::Pair { index })?;
        let known = names.iter().position(|known| *known == name);
        let at = known.ok_or(SettingError::Unknown { index })?;
        // An error rather than a choice: nothing says which of the two is meant.
        if values[at].replace(value).is_some() {
            return Err(SettingError::SetTwice { name: names[at] });
        }
    }
    Ok(names.into_iter().zip(values).filter_map(|(name, value)| Some((name, value?))))
}

/// Reads the value of a setting that is percent-encoded text and not empty.
///
/// # Errors
///
/// [`SettingError::Value`] if it is none.
pub fn text_of(name: &'static str, value: &str) -> Result<String, SettingError> {
    let decoded = percent_decode(value).filter(|text| !text.is_empty());
    decoded.ok_or(SettingError::Value { name, expected: "percent-encoded text" })
}

/// Reads the value of a setting that is a number.
///
/// # Errors
///
/// [`SettingError::Value`] if it is none.
pub fn number_of<N: FromStr>(name: &'static str, value: &str) -> Result<N, SettingError> {
    value.parse().map_err(|_| SettingError::Value { name, expected: "a number" })
}

/// Reads the value of a setting that is a time, as [`parse_duration`].
///
/// # Errors
///
/// [`SettingError::Value`] if it is none.
pub fn duration_of(name: &'static str, value: &str) -> Result<Duration, SettingError> {
    let expected = "a number followed by ms, s or m";
    parse_duration(value).ok_or(SettingError::Value { name, expected })
}

/// The settings of TLS, which depend on each other.
#[derive(Default)]
pub struct TlsSettings {
    ca: Option<String>,
    cert: Option<String>,
    key: Option<String>,
    server_name: Option<String>,
    is_off: bool,
}

/// TLS as a URL asks for it.
#[non_exhaustive]
pub struct TlsChoice {
    /// The file of the authorities.
    pub ca: String,
    /// The files of our certificate and its key.
    pub identity: Option<(String, String)>,
    /// The name in the server's certificate, if it is not the host's.
    pub server_name: Option<String>,
}

impl TlsSettings {
    /// The names of the settings.
    pub const NAMES: [&'static str; 5] = ["tls", "ca", "cert", "key", "server_name"];

    /// Sets one of [`Self::NAMES`].
    ///
    /// # Errors
    ///
    /// [`SettingError::Value`].
    ///
    /// # Panics
    ///
    /// Panics if `name` is none of them.
    pub fn set(&mut self, name: &'static str, value: &str) -> Result<(), SettingError> {
        match name {
            "tls" if value == "off" => self.is_off = true,
            "tls" => return Err(SettingError::Value { name, expected: "off" }),
            "ca" => self.ca = Some(text_of(name, value)?),
            "cert" => self.cert = Some(text_of(name, value)?),
            "key" => self.key = Some(text_of(name, value)?),
            "server_name" => self.server_name = Some(text_of(name, value)?),
            _ => panic!("no setting of TLS is called {name}"),
        }
        Ok(())
    }

    /// Returns whether clear text is asked for.
    #[must_use]
    pub const fn is_off(&self) -> bool {
        self.is_off
    }

    /// Returns what the settings ask for; `None` if TLS is not turned on.
    ///
    /// # Errors
    ///
    /// [`SettingError`] for a certificate without its key or the reverse, for settings without the
    /// authorities, and for settings beside `tls=off`.
    pub fn finish(self) -> Result<Option<TlsChoice>, SettingError> {
        let identity = match (self.cert, self.key) {
            (Some(cert), Some(key)) => Some((cert, key)),
            (None, None) => None,
            (Some(_), None) | (None, Some(_)) => return Err(SettingError::HalfIdentity),
        };
        if self.is_off && self.ca.is_some() {
            return Err(SettingError::Contradiction);
        }
        // The authorities of the system are not trusted, so without `ca` no server could be
        // verified.
        let Some(ca) = self.ca else {
            let says_nothing = identity.is_none() && self.server_name.is_none();
            return says_nothing.then_some(None).ok_or(SettingError::NoAuthorities);
        };
        Ok(Some(TlsChoice { ca, identity, server_name: self.server_name }))
    }
}
