//! The files of the page, as they are in `assets`: no build step.

use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse as _, Response};

/// The page itself, for every path of it.
const PAGE: &str = include_str!("../assets/index.html");

const JAVASCRIPT: &str = "text/javascript; charset=utf-8";

/// Name, type and content of each other file.
const FILES: [(&str, &str, &str); 9] = [
    ("style.css", "text/css; charset=utf-8", include_str!("../assets/style.css")),
    ("icon.svg", "image/svg+xml", include_str!("../assets/icon.svg")),
    ("app.js", JAVASCRIPT, include_str!("../assets/app.js")),
    ("api.js", JAVASCRIPT, include_str!("../assets/api.js")),
    ("dom.js", JAVASCRIPT, include_str!("../assets/dom.js")),
    ("charts.js", JAVASCRIPT, include_str!("../assets/charts.js")),
    ("actions.js", JAVASCRIPT, include_str!("../assets/actions.js")),
    ("run.js", JAVASCRIPT, include_str!("../assets/run.js")),
    ("lists.js", JAVASCRIPT, include_str!("../assets/lists.js")),
];

/// Returns the page.
pub(crate) async fn page() -> Response {
    file("text/html; charset=utf-8", PAGE)
}

/// Returns a file of the page by its name.
pub(crate) fn named(name: &str) -> Option<Response> {
    let found = FILES.iter().find(|(known, ..)| *known == name)?;
    Some(file(found.1, found.2))
}

fn file(kind: &'static str, content: &'static str) -> Response {
    let mut response = content.into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_has_no_inline_script_or_style_and_nothing_from_elsewhere() {
        let all = [PAGE].into_iter().chain(FILES.iter().map(|(.., content)| *content));
        for text in all {
            for wrong in [" style=\"", "<style", "onclick=", "onload=", "innerHTML", "eval("] {
                assert!(!text.contains(wrong), "{wrong}");
            }
            let rest = text.replace("http://www.w3.org/2000/svg", "");
            assert!(!rest.contains("http://") && !rest.contains("https://"));
        }
        assert!(!PAGE.contains("<script>"));
    }
}
