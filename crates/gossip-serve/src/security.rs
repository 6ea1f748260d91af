//! What every request must pass, and what every response carries.
//!
//! ```text
//!  Host ─► rate ─► token ─► (changes: role, read-only, JSON, same site) ─► handler ─► headers
//! ```
//!
//! `Host` comes first on every route: listening on loopback does not stop a page of another site,
//! whose name is made to resolve to 127.0.0.1, from sending requests here.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::body::HttpBody as _;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

use crate::access::Role;
use crate::app::App;
use crate::limits::Guess;
use crate::problem::{Code, Problem};
use crate::state::add;

/// Longest body of a request.
pub(crate) const BODY_MAX: u64 = 16 << 10;

/// Names of loopback.
const LOOPBACK_HOSTS: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

/// Nothing from elsewhere, nothing inline, no frame around it.
const CONTENT_SECURITY_POLICY: &str = "default-src 'self'; base-uri 'none'; form-action 'none'; \
                                       frame-ancestors 'none'; object-src 'none'";

/// Where a request comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer(pub(crate) IpAddr);

/// Hosts that requests may address.
pub(crate) struct Hosts(Vec<String>);

impl Hosts {
    /// Returns the loopback names and the own address with its port, and `allowed`, with a port or
    /// without. A name can be made to resolve to the own address; the address itself cannot, so a
    /// page that a browser has from it is ours.
    pub(crate) fn new(address: SocketAddr, allowed: &[String]) -> Self {
        let port = address.port();
        // The names and not every name that resolves here: a foreign page can make its own name do
        // that.
        let names = LOOPBACK_HOSTS.iter().map(|host| (*host).to_owned());
        let bound = (!address.ip().is_unspecified()).then(|| match address.ip() {
            IpAddr::V4(ip) => ip.to_string(),
            IpAddr::V6(ip) => format!("[{ip}]"),
        });
        let names: Vec<String> = names.chain(bound).collect();
        let own = names.iter().map(|host| format!("{host}:{port}"));
        // Browsers leave the port of http out.
        let bare = names.iter().filter(|_| port == 80).cloned();
        let allowed = allowed.iter().flat_map(|host| {
            let host = host.to_ascii_lowercase();
            [format!("{host}:{port}"), host]
        });
        Self(own.chain(bare).chain(allowed).collect())
    }

    fn allow(&self, host: &str) -> bool {
        self.0.iter().any(|known| known.eq_ignore_ascii_case(host))
    }

    /// Checks the one `Host` header, and the authority of an absolute target.
    fn check(&self, headers: &HeaderMap, uri: &Uri) -> bool {
        let mut hosts = headers.get_all(header::HOST).iter();
        // Two headers are refused, because a proxy may have looked at the other one.
        let (Some(host), None) = (hosts.next(), hosts.next()) else { return false };
        let is_ours = host.to_str().is_ok_and(|host| self.allow(host));
        is_ours && uri.authority().is_none_or(|authority| self.allow(authority.as_str()))
    }

    /// Checks the origin of a change.
    fn is_own_origin(&self, origin: &HeaderValue) -> bool {
        let origin = origin.to_str().unwrap_or_default();
        let host = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
        host.is_some_and(|host| self.allow(host))
    }
}

/// Passes a request on, or refuses it.
pub(crate) async fn guard(
    State(app): State<Arc<App>>,
    mut request: Request,
    next: Next,
) -> Response {
    add(&app.shared.counters.requests);
    let is_api = request.uri().path().starts_with("/api/");
    let response = match check(&app, &mut request) {
        Err(problem) => {
            add(&app.shared.counters.refused);
            problem.into_response()
        }
        Ok(()) => {
            let limit = app.shared.options.limits.request_time;
            match tokio::time::timeout(limit, next.run(request)).await {
                Ok(response) => response,
                Err(_) => Problem::new(Code::Timeout).into_response(),
            }
        }
    };
    if response.status().is_server_error() {
        add(&app.shared.counters.failed);
    }
    with_headers(response, is_api)
}

fn check(app: &App, request: &mut Request) -> Result<(), Problem> {
    if !app.hosts.check(request.headers(), request.uri()) {
        return Err(Problem::new(Code::WrongHost)
            .detail("address the server by its own name, or start it with --allow-host NAME"));
    }
    let peer = request.extensions().get::<Peer>().copied();
    let peer = peer.map_or_else(|| IpAddr::from([0, 0, 0, 0]), |peer| peer.0);
    if !app.limits.admit(peer) {
        return Err(Code::TooManyRequests.into());
    }
    let path = request.uri().path();
    let is_sign_in = path == "/api/v1/session" && request.method() == Method::POST;
    // The token to sign in with is in the body.
    let needs_token = (path.starts_with("/api/") || path == "/metrics") && !is_sign_in;
    let given = app.tokens.given(request.headers()).filter(|_| !is_sign_in);
    // Also on routes that need no token, so that a wrong one counts everywhere.
    let guess =
        given.map(|given| app.limits.guess(peer, given.as_bytes(), || app.tokens.role_of(given)));
    let role = match guess {
        Some(Guess::Right(role)) => Some(role),
        Some(Guess::TooMany) if needs_token => return Err(too_many_guesses()),
        Some(Guess::Wrong | Guess::TooMany) | None => None,
    };
    let is_change = ![Method::GET, Method::HEAD].contains(request.method());
    if needs_token && role.is_none() {
        return Err(Problem::new(Code::Unauthorized).detail(
            "open the address that `gossip serve` printed, or send `Authorization: Bearer TOKEN`",
        ));
    }
    if is_change {
        check_change(app, request.headers())?;
        if !is_sign_in {
            check_role(app, role)?;
        }
    }
    if request.body().size_hint().lower() > BODY_MAX {
        return Err(Code::BodyTooLarge.into());
    }
    if let Some(role) = role {
        request.extensions_mut().insert(role);
    }
    Ok(())
}

pub(crate) fn too_many_guesses() -> Problem {
    Problem::new(Code::TooManyRequests).detail("too many wrong tokens from this address")
}

/// Checks that a change comes from our own page, or from no browser.
fn check_change(app: &App, headers: &HeaderMap) -> Result<(), Problem> {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let kind = kind.map(|kind| kind.split(';').next().unwrap_or_default().trim());
    // A form of another site cannot send this type without asking first.
    if !kind.is_some_and(|kind| kind.eq_ignore_ascii_case("application/json")) {
        return Err(Code::UnsupportedMediaType.into());
    }
    let site = headers.get("sec-fetch-site");
    // Browsers send it; a client that is none sends neither header and needs a token in any case.
    let is_foreign_site = site.is_some_and(|site| site != "same-origin");
    let origin = headers.get(header::ORIGIN);
    if is_foreign_site || origin.is_some_and(|origin| !app.hosts.is_own_origin(origin)) {
        return Err(Code::CrossSite.into());
    }
    Ok(())
}

fn check_role(app: &App, role: Option<Role>) -> Result<(), Problem> {
    match role {
        _ if app.shared.options.read_only => Err(Code::ReadOnly.into()),
        Some(Role::Operate) => Ok(()),
        Some(Role::Read) | None => Err(Code::Forbidden.into()),
    }
}

fn with_headers(mut response: Response, is_api: bool) -> Response {
    let headers = response.headers_mut();
    let mut set = |name: header::HeaderName, value: &'static str| {
        headers.insert(name, HeaderValue::from_static(value));
    };
    set(header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY);
    set(header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    set(header::X_FRAME_OPTIONS, "DENY");
    set(header::REFERRER_POLICY, "no-referrer");
    set(header::HeaderName::from_static("cross-origin-resource-policy"), "same-origin");
    set(header::HeaderName::from_static("cross-origin-opener-policy"), "same-origin");
    // Answers name items of the tenant, so they must not stay on a disk. Files of the page may, if
    // asked for again.
    set(header::CACHE_CONTROL, if is_api { "no-store" } else { "no-cache" });
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn local(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    #[test]
    fn own_address_is_a_host_and_the_unspecified_one_is_not() {
        for (address, host, is_host) in [
            ("127.0.0.2:7717", "127.0.0.2:7717", true),
            ("10.0.0.5:7717", "10.0.0.5:7717", true),
            ("[fd00::5]:7717", "[fd00::5]:7717", true),
            ("10.0.0.5:80", "10.0.0.5", true),
            ("10.0.0.5:7717", "10.0.0.6:7717", false),
            ("127.0.0.2:7717", "127.0.0.3:7717", false),
            ("0.0.0.0:7717", "0.0.0.0:7717", false),
            ("[::]:7717", "[::]:7717", false),
            ("[::]:7717", "127.0.0.1:7717", true),
        ] {
            let hosts = Hosts::new(address.parse().unwrap(), &[]);
            assert_eq!(hosts.allow(host), is_host, "{address} {host}");
        }
    }

    #[test]
    fn only_own_names_with_the_own_port_are_hosts() {
        let hosts =
            Hosts::new(local(7717), &["gossip.example".to_owned(), "other:8443".to_owned()]);
        for own in [
            "localhost:7717",
            "LOCALHOST:7717",
            "127.0.0.1:7717",
            "[::1]:7717",
            "gossip.example",
            "gossip.example:7717",
            "other:8443",
        ] {
            assert!(hosts.allow(own), "{own}");
        }
        for foreign in [
            "localhost",
            "127.0.0.1",
            "127.0.0.1:7718",
            "evil.example:7717",
            "localhost.evil.example:7717",
            "localhost:7717.evil.example",
            "0.0.0.0:7717",
            "gossip.example:1",
            "",
        ] {
            assert!(!hosts.allow(foreign), "{foreign}");
        }
    }

    #[test]
    fn two_hosts_no_host_and_a_foreign_target_are_refused() {
        let hosts = Hosts::new(local(1), &[]);
        let own = (header::HOST, HeaderValue::from_static("localhost:1"));
        let path = Uri::from_static("/");
        assert!(hosts.check(&HeaderMap::from_iter([own.clone()]), &path));
        assert!(!hosts.check(&HeaderMap::new(), &path));
        let mut two = HeaderMap::from_iter([own.clone()]);
        two.append(header::HOST, HeaderValue::from_static("localhost:1"));
        assert!(!hosts.check(&two, &path));
        let foreign = Uri::from_static("http://evil.example/");
        assert!(!hosts.check(&HeaderMap::from_iter([own]), &foreign));
    }

    #[test]
    fn origins_are_compared_with_the_hosts() {
        let hosts = Hosts::new(local(7717), &[]);
        let is_own = |origin| hosts.is_own_origin(&HeaderValue::from_static(origin));
        assert!(is_own("http://localhost:7717"));
        for foreign in ["null", "http://evil.example", "http://localhost:7718", "localhost:7717"] {
            assert!(!is_own(foreign), "{foreign}");
        }
    }
}
