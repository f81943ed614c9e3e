//! The page for people, at `/`: files in the program. It gets all that it shows from the paths of this node, as the user whose
//! password was typed into it.
//!
//! The files need no password, since they hold nothing but the page itself. They load nothing from elsewhere, and the
//! browser has instructions to refuse everything else: inline scripts, other sites, frames.

use hyper::header::ACCEPT;
use hyper::{HeaderMap, Method};

use super::answer::{Answer, Refusal, only};

const HTML: &[u8] = include_bytes!("page/index.html");
const STYLE: &[u8] = include_bytes!("page/page.css");
const SCRIPT: &[u8] = include_bytes!("page/page.js");
const HISTORY: &[u8] = include_bytes!("page/history.js");
const ACTIONS: &[u8] = include_bytes!("page/actions.js");
const ICON: &[u8] = include_bytes!("page/icon.svg");

/// A file of the page, if the request is for one. `GET /` returns the page to browsers, which ask for HTML; others
/// get the list of paths.
pub(super) fn file(path: &str, method: &Method, headers: &HeaderMap) -> Option<Result<Answer, Refusal>> {
    let (kind, body) = match path {
        "/" if wants_html(headers) => ("text/html; charset=utf-8", HTML),
        "/page/page.css" => ("text/css; charset=utf-8", STYLE),
        "/page/page.js" => ("text/javascript; charset=utf-8", SCRIPT),
        "/page/history.js" => ("text/javascript; charset=utf-8", HISTORY),
        "/page/actions.js" => ("text/javascript; charset=utf-8", ACTIONS),
        "/page/icon.svg" => ("image/svg+xml", ICON),
        _ => return None,
    };
    if method == Method::DELETE {
        return None; // A key may have this name.
    }
    Some(only(method, &[Method::GET, Method::HEAD], "GET, DELETE").map(|()| Answer::file(kind, body)))
}

fn wants_html(headers: &HeaderMap) -> bool {
    let kinds = headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    kinds.split(',').any(|kind| kind.split(';').next().is_some_and(|kind| kind.trim() == "text/html"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn browsers_get_the_page_and_programs_the_list() {
        let asks = |path: &str, method: &Method, accept: &str| {
            let headers: HeaderMap = [(ACCEPT, accept.parse().unwrap())].into_iter().collect();
            file(path, method, &headers).map(|answer| answer.is_ok())
        };
        let browser = "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8";
        assert_eq!(asks("/", &Method::GET, browser), Some(true));
        assert_eq!(asks("/", &Method::GET, "*/*"), None);
        assert_eq!(asks("/page/page.js", &Method::GET, "*/*"), Some(true));
        assert_eq!(asks("/page/history.js", &Method::GET, "*/*"), Some(true));
        assert_eq!(asks("/page/actions.js", &Method::GET, "*/*"), Some(true));
        assert_eq!(asks("/page/page.js", &Method::POST, "*/*"), Some(false));
        assert_eq!(asks("/page/page.js", &Method::DELETE, "*/*"), None);
        assert_eq!(asks("/page/other", &Method::GET, browser), None);
    }

    #[test]
    fn the_page_has_nothing_that_its_policy_forbids() {
        let html = std::str::from_utf8(HTML).unwrap();
        for forbidden in ["<script>", "<style", " style=", " onclick=", "javascript:", "https://", "http://"]
        {
            assert!(!html.contains(forbidden), "{forbidden}");
        }
    }
}
