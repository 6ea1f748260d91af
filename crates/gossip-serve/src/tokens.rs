//! Tokens, and the cookies that a browser gets for them.
//!
//! A token is compared by its hash, so the time that a comparison takes says nothing about it. The
//! cookie is derived from the token: it survives a restart of the server exactly if the token does.

use axum::http::{HeaderMap, header};

use crate::access::Role;

/// Bytes of a token that the server makes, before they are written in hexadecimal digits.
const TOKEN_BYTES: usize = 32;

/// Domain of the hash that makes a cookie of a token.
const COOKIE_CONTEXT: &str = "gossip serve 2026 cookie of a token";

/// The tokens of a server.
pub(crate) struct Tokens {
    known: Vec<Known>,
    /// With the port, because all ports of a host share their cookies.
    cookie_name: String,
}

struct Known {
    role: Role,
    token: blake3::Hash,
    cookie: String,
    cookie_hash: blake3::Hash,
}

impl Tokens {
    pub(crate) fn new(tokens: &[(Role, String)], port: u16) -> Self {
        let known = tokens.iter().map(|(role, token)| {
            let cookie = blake3::derive_key(COOKIE_CONTEXT, token.as_bytes());
            let cookie = blake3::Hash::from_bytes(cookie).to_hex().to_string();
            let cookie_hash = blake3::hash(cookie.as_bytes());
            Known { role: *role, token: blake3::hash(token.as_bytes()), cookie, cookie_hash }
        });
        Self { known: known.collect(), cookie_name: format!("gossip_{port}") }
    }

    /// Returns the role of a token.
    pub(crate) fn role(&self, token: &str) -> Option<Role> {
        let hash = blake3::hash(token.as_bytes());
        // The same token may be given for both roles; it then has the higher one.
        self.known.iter().filter(|known| known.token == hash).map(|known| known.role).max()
    }

    /// Returns the header that gives a browser the cookie of a token.
    pub(crate) fn cookie(&self, token: &str, is_secure: bool) -> Option<String> {
        let hash = blake3::hash(token.as_bytes());
        let known = self.known.iter().find(|known| known.token == hash)?;
        let secure = if is_secure { "; Secure" } else { "" };
        let (name, value) = (&self.cookie_name, &known.cookie);
        // No script of the page can read it, and no other site can make a browser send it.
        Some(format!("{name}={value}; HttpOnly; SameSite=Strict; Path=/{secure}"))
    }

    /// Returns the credential of a request: its header, or otherwise its cookie.
    pub(crate) fn given<'a>(&self, headers: &'a HeaderMap) -> Option<Given<'a>> {
        if let Some(given) = headers.get(header::AUTHORIZATION) {
            let bearer = given.to_str().ok().and_then(|given| given.split_once(' '));
            let bearer = bearer.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
            // Another scheme is a wrong token.
            return Some(Given::Token(bearer.map_or("", |(_, token)| token.trim())));
        }
        let cookies =
            headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
        let pairs = cookies.flat_map(|cookies| cookies.split(';'));
        let mut values = pairs.filter_map(|pair| pair.trim().split_once('='));
        // Browsers send one cookie of a name and path.
        let (_, value) = values.find(|(name, _)| *name == self.cookie_name)?;
        Some(Given::Cookie(value))
    }

    /// Returns the role of a credential.
    pub(crate) fn role_of(&self, given: Given<'_>) -> Option<Role> {
        match given {
            Given::Token(token) => self.role(token),
            Given::Cookie(value) => {
                let hash = blake3::hash(value.as_bytes());
                let known = self.known.iter().filter(|known| known.cookie_hash == hash);
                known.map(|known| known.role).max()
            }
        }
    }
}

/// What a request gives to be admitted.
#[derive(Clone, Copy)]
pub(crate) enum Given<'a> {
    Token(&'a str),
    Cookie(&'a str),
}

impl Given<'_> {
    pub(crate) const fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Token(text) | Self::Cookie(text) => text.as_bytes(),
        }
    }
}

/// Returns a new token.
pub(crate) fn fresh() -> std::io::Result<String> {
    let mut bytes = [0_u8; TOKEN_BYTES];
    let mut filled = 0;
    // The system may return fewer bytes than asked for.
    while filled < bytes.len() {
        filled +=
            rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty())?;
    }
    Ok(blake3::Hash::from_bytes(bytes).to_hex().to_string())
}

#[cfg(test)]
mod tests {
    use gossip::identity::TenantId;

    use super::*;
    use crate::access::{ServeLimits, ServeOptions};
    use crate::wire::SignIn;

    fn headers(name: header::HeaderName, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name, value.parse().unwrap())])
    }

    #[test]
    fn role_is_that_of_the_header_or_the_cookie() {
        let tokens = [(Role::Read, "looker".to_owned()), (Role::Operate, "operator".to_owned())];
        let tokens = Tokens::new(&tokens, 7717);
        let role_of = |headers: &HeaderMap| tokens.role_of(tokens.given(headers)?);
        let bearer = |token: &str| role_of(&headers(header::AUTHORIZATION, token));
        assert_eq!(bearer("Bearer looker"), Some(Role::Read));
        assert_eq!(bearer("bearer operator"), Some(Role::Operate));
        for wrong in ["Bearer lookers", "looker", "Basic looker", "Bearer "] {
            assert_eq!(bearer(wrong), None, "{wrong}");
        }
        let cookie = tokens.cookie("operator", false).unwrap();
        assert!(cookie.ends_with("; HttpOnly; SameSite=Strict; Path=/"), "{cookie}");
        assert!(cookie.starts_with("gossip_7717=") && !cookie.contains("operator"));
        let pair = cookie.split(';').next().unwrap();
        let by_cookie = |text: &str| role_of(&headers(header::COOKIE, text));
        assert_eq!(by_cookie(&format!("other=1; {pair}")), Some(Role::Operate));
        assert_eq!(by_cookie(&pair.replace("7717", "7718")), None);
        assert_eq!(by_cookie("gossip_7717=operator"), None);
    }

    #[test]
    fn fresh_tokens_differ() {
        let (one, other) = (fresh().unwrap(), fresh().unwrap());
        assert!(one.len() == 2 * TOKEN_BYTES && one != other);
    }

    #[test]
    fn token_is_not_in_a_debug_text() {
        let options = ServeOptions {
            listen: ([127, 0, 0, 1], 0).into(),
            tenant: TenantId::from_bytes([1; 32]),
            tenant_name: "default".to_owned(),
            read_only: false,
            allow_hosts: Vec::new(),
            tokens: vec![(Role::Read, "looker".to_owned())],
            version: "1".to_owned(),
            limits: ServeLimits::default(),
        };
        let body = SignIn { token: "looker".to_owned() };
        for text in [format!("{options:?}"), format!("{body:?}")] {
            assert!(!text.contains("looker"), "{text}");
        }
    }
}
