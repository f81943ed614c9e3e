//! The bucket, its address and the keys for it: from `s3://BUCKET/PREFIX` and the environment, whose variables are those of
//! other programs for S3.

use std::path::PathBuf;

use anyhow::{Context as _, Result, bail, ensure};
use rusty_s3::{Bucket, Credentials, UrlStyle};
use url::Url;

/// The region if none is given. Most stores other than Amazon's ignore it.
const REGION: &str = "us-east-1";

/// A place in an object store, and how to get there.
pub(super) struct Address {
    pub(super) bucket: Bucket,
    pub(super) credentials: Credentials,
    /// The prefix of the names of all objects: empty, or with a slash at its end.
    pub(super) prefix: String,
    /// The store's host and port, for messages.
    pub(super) host: String,
    /// The authorities to trust, if not those that this machine trusts.
    pub(super) authorities: Option<PathBuf>,
}

impl Address {
    /// Finds the address of `BUCKET/PREFIX` in this environment.
    ///
    /// # Errors
    /// A sentence that says what is missing.
    pub(super) fn find(place: &str, environment: impl Fn(&str) -> Option<String>) -> Result<Address> {
        let (name, prefix) = place.split_once('/').unwrap_or((place, ""));
        let prefix = prefix.trim_end_matches('/');
        ensure!(!name.is_empty(), "s3://{place} names no bucket: write s3://BUCKET/PREFIX");
        let is_plain =
            |part: &str| !part.is_empty() && part != "." && part != ".." && !part.contains(['?', '#']);
        ensure!(
            prefix.is_empty() || prefix.split('/').all(is_plain),
            "s3://{place}: a part of the prefix is empty, a dot, or has ? or #: choose another one"
        );
        let prefix = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };

        let said = |name: &str| environment(name).filter(|value| !value.is_empty());
        let needed = |variable: &str| {
            said(variable).with_context(|| {
                format!(
                    "s3://{place}: the environment has no {variable}: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (and \
                     AWS_SESSION_TOKEN for keys that expire) to keys of the store"
                )
            })
        };
        let (key, secret) = (needed("AWS_ACCESS_KEY_ID")?, needed("AWS_SECRET_ACCESS_KEY")?);
        let credentials = match said("AWS_SESSION_TOKEN") {
            Some(token) => Credentials::new_with_token(key, secret, token),
            None => Credentials::new(key, secret),
        };
        let region =
            said("AWS_REGION").or_else(|| said("AWS_DEFAULT_REGION")).unwrap_or_else(|| REGION.into());
        let own = said("AWS_ENDPOINT_URL_S3").or_else(|| said("AWS_ENDPOINT_URL"));
        let (endpoint, style) = match own {
            Some(url) => (url, UrlStyle::Path),
            None => {
                let domain = if region.starts_with("cn-") { "amazonaws.com.cn" } else { "amazonaws.com" };
                // A wildcard certificate for all buckets does not match names with dots.
                let style = if name.contains('.') { UrlStyle::Path } else { UrlStyle::VirtualHost };
                (format!("https://s3.{region}.{domain}"), style)
            }
        };
        let Ok(url) = Url::parse(&endpoint) else {
            bail!("AWS_ENDPOINT_URL is {endpoint}, and that is not an address: write https://HOST:PORT")
        };
        let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
        let host = format!("{}{port}", url.host_str().unwrap_or_default());
        let bucket = Bucket::new(url, style, name.to_owned(), region);
        let bucket =
            bucket.with_context(|| format!("s3://{place}: there can be no bucket {name} at {endpoint}"))?;
        let authorities = said("AWS_CA_BUNDLE").map(PathBuf::from);
        Ok(Address { bucket, credentials, prefix, host, authorities })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(place: &str, environment: &[(&str, &str)]) -> Result<Address, String> {
        let keys = [("AWS_ACCESS_KEY_ID", "key"), ("AWS_SECRET_ACCESS_KEY", "hidden")];
        let value = |name: &str| {
            environment.iter().chain(&keys).find(|(it, _)| *it == name).map(|(_, value)| (*value).to_owned())
        };
        Address::find(place, value).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn an_address_comes_from_the_environment() {
        let url = |place: &str, environment: &[(&str, &str)]| {
            let address = find(place, environment).unwrap();
            address.bucket.object_url(&format!("{}x", address.prefix)).to_string()
        };
        assert_eq!(url("b/shop/", &[]), "https://b.s3.us-east-1.amazonaws.com/shop/x");
        assert_eq!(
            url("b", &[("AWS_DEFAULT_REGION", "eu-west-1")]),
            "https://b.s3.eu-west-1.amazonaws.com/x"
        );
        let both = [("AWS_DEFAULT_REGION", "eu-west-1"), ("AWS_REGION", "cn-north-1")];
        assert_eq!(url("a.b/c", &both), "https://s3.cn-north-1.amazonaws.com.cn/a.b/c/x");
        let own = [("AWS_ENDPOINT_URL", "http://10.0.0.1:9000")];
        assert_eq!(url("b/c/d", &own), "http://10.0.0.1:9000/b/c/d/x");
        let both = [own[0], ("AWS_ENDPOINT_URL_S3", "https://store.example/s3")];
        assert_eq!(url("b/c", &both), "https://store.example/s3/b/c/x");
        assert_eq!(find("b", &own).unwrap().host, "10.0.0.1:9000");
    }

    #[test]
    fn errors_name_what_is_missing() {
        for (place, environment, why) in [
            ("", &[][..], "names no bucket"),
            ("b/../c", &[], "choose another one"),
            ("b//c", &[], "choose another one"),
            ("b/c", &[("AWS_SECRET_ACCESS_KEY", "")], "the environment has no AWS_SECRET_ACCESS_KEY"),
            ("b/c", &[("AWS_ENDPOINT_URL", "nowhere")], "that is not an address"),
            ("b/c", &[("AWS_ENDPOINT_URL", "ftp://host")], "there can be no bucket b at ftp://host"),
        ] {
            let said = find(place, environment).err().unwrap();
            assert!(said.contains(why) && !said.contains("hidden"), "{place}: {said}");
        }
    }
}
