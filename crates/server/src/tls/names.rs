//! The names and dates in a certificate, read from its bytes. Whether the certificate is trusted is decided
//! elsewhere.

use node::NodeId;
use rustls::client::verify_server_name;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::ParsedCertificate;

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const COMMON_NAME: [u8; 3] = [0x55, 4, 3];
const ORGANIZATION: [u8; 3] = [0x55, 4, 10];

/// The common name of a certificate's owner, if it has one that is text.
pub fn common_name(certificate: &[u8]) -> Option<String> {
    let (kind, name) = Fields::of(certificate)?.subject_parts().find(|(kind, _)| *kind == COMMON_NAME)?;
    let name = std::str::from_utf8(name).ok().filter(|_| kind == COMMON_NAME)?;
    Some(name.to_owned())
}

/// Checks that a certificate, issued by a trusted authority, is that of a node. Its common name must be `node-N`, as `quorate
/// certs` makes it; a certificate with another common name must be for the node's host.
///
/// # Errors
/// It is another's: a clause that says whose.
pub(crate) fn check_node(certificate: &CertificateDer<'_>, node: NodeId, host: &str) -> Result<(), String> {
    let name = common_name(certificate).unwrap_or_default();
    if let Some(number) = name.strip_prefix("node-").and_then(|number| number.parse::<NodeId>().ok()) {
        return match number == node {
            true => Ok(()),
            false => Err(format!("its certificate is that of node {number}, and not that of node {node}")),
        };
    }
    let is_for_host = ServerName::try_from(host).is_ok_and(|host| {
        let parsed = ParsedCertificate::try_from(certificate);
        parsed.is_ok_and(|parsed| verify_server_name(&parsed, &host).is_ok())
    });
    match is_for_host {
        true => Ok(()),
        false => Err(format!(
            "its certificate, of \"{}\", is neither that of node-{node} nor for the host {host}",
            name.escape_debug()
        )),
    }
}

/// The last day on which a certificate is valid, as `YYYY-MM-DD`.
pub fn last_day(certificate: &[u8]) -> Option<String> {
    let digits = expiry(certificate)?;
    Some(format!("{}-{}-{}", &digits[..4], &digits[4..6], &digits[6..8]))
}

/// When a certificate expires, in seconds since the Unix epoch; 0 if that was before the epoch.
pub(super) fn expires_s(certificate: &[u8]) -> Option<u64> {
    let digits = expiry(certificate)?;
    let number = |from: usize, to: usize| digits.get(from..to)?.parse::<i64>().ok();
    let (year, month, day) = (number(0, 4)?, number(4, 6)?, number(6, 8)?);
    let [hour, minute, second] = [8, 10, 12].map(|from| number(from, from + 2));
    // Days of the civil calendar, with years that begin in March so that a leap day is the last (H. Hinnant,
    // "chrono-compatible low-level date algorithms").
    let year = year - i64::from(month <= 2);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let days = era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468;
    Some(u64::try_from(days * 86_400 + hour? * 3600 + minute? * 60 + second?).unwrap_or(0))
}

/// The expiry time as the certificate has it: `YYYYMMDDhhmmss` and more.
fn expiry(certificate: &[u8]) -> Option<String> {
    let mut validity = Fields::of(certificate)?.validity;
    element(&mut validity)?;
    let (kind, time) = element(&mut validity)?;
    let digits = std::str::from_utf8(time).ok()?;
    // Two digits of a year stand for 1950 to 2049.
    let century = match kind {
        UTC_TIME if digits.get(..1)? < "5" => "20",
        UTC_TIME => "19",
        _ => "",
    };
    let text = format!("{century}{digits}");
    let is_date = text.get(..8)?.bytes().all(|byte| byte.is_ascii_digit());
    is_date.then_some(text)
}

/// The organization and the common name of a distinguished name in DER, for people to read.
pub fn readable(name: &[u8]) -> String {
    let wanted = parts(name).filter(|(kind, _)| *kind == COMMON_NAME || *kind == ORGANIZATION);
    let texts: Vec<String> =
        wanted.map(|(_, text)| String::from_utf8_lossy(text).escape_debug().to_string()).collect();
    if texts.is_empty() { "an owner without a name".to_owned() } else { format!("\"{}\"", texts.join(", ")) }
}

/// Some fields of a certificate, in DER.
struct Fields<'d> {
    validity: &'d [u8],
    subject: &'d [u8],
}

impl<'d> Fields<'d> {
    fn of(mut certificate: &'d [u8]) -> Option<Fields<'d>> {
        let (_, mut signed) = element(&mut certificate)?;
        let (_, mut fields) = element(&mut signed)?;
        // The serial number comes first, or after the version; then the algorithm and the issuer.
        if element(&mut fields)?.0 == VERSION {
            element(&mut fields)?;
        }
        element(&mut fields)?;
        element(&mut fields)?;
        let (_, validity) = element(&mut fields)?;
        let (_, subject) = element(&mut fields)?;
        Some(Fields { validity, subject })
    }

    fn subject_parts(&self) -> impl Iterator<Item = (&'d [u8], &'d [u8])> + use<'d> {
        parts(self.subject)
    }
}

/// The parts of a distinguished name: kinds and texts.
fn parts(name: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let (mut rest, mut set): (&[u8], &[u8]) = (name, &[]);
    std::iter::from_fn(move || {
        loop {
            if let Some((SEQUENCE, mut pair)) = element(&mut set) {
                let (_, kind) = element(&mut pair)?;
                let (_, text) = element(&mut pair)?;
                return Some((kind, text));
            }
            match element(&mut rest)? {
                (SET, next) => set = next,
                _ => return None,
            }
        }
    })
}

/// Takes the next element of DER: its tag and its content.
fn element<'d>(bytes: &mut &'d [u8]) -> Option<(u8, &'d [u8])> {
    let (&[tag, first], mut rest) = bytes.split_first_chunk()?;
    let mut length = usize::from(first);
    if first & 0x80 != 0 {
        let (digits, behind) = rest.split_at_checked(usize::from(first & 0x7f))?;
        (length, rest) = (0, behind);
        for digit in digits {
            length = length.checked_mul(256)? + usize::from(*digit);
        }
    }
    let (content, behind) = rest.split_at_checked(length)?;
    *bytes = behind;
    Some((tag, content))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, DnType, KeyPair, date_time_ymd};

    #[test]
    fn names_are_read() {
        let part = |kind: u8, text: &str| {
            let mut pair = vec![6, 3, 0x55, 4, kind, 12, text.len() as u8];
            pair.extend_from_slice(text.as_bytes());
            let mut set = vec![0x31, pair.len() as u8 + 2, 0x30, pair.len() as u8];
            set.append(&mut pair);
            set
        };
        let name = [part(6, "DE"), part(10, "Acme"), part(3, "Acme Root\n")].concat();
        assert_eq!(readable(&name), "\"Acme, Acme Root\\n\"");
        let nobody = "an owner without a name";
        assert_eq!(readable(&[]), nobody);
        // Any bytes that a server sends are read within their bounds.
        for length in 0..name.len() {
            let _ = readable(&name[..length]);
        }
        assert_eq!(readable(&[0x31, 0x89, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1]), nobody);
    }

    #[test]
    fn a_certificate_matches_a_node_by_its_number_or_else_by_its_host() {
        let made = |name: &str, host: &str| {
            let mut params = CertificateParams::new(vec![host.to_owned()]).unwrap();
            params.distinguished_name.push(DnType::CommonName, name);
            params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().clone()
        };
        let numbered = made("node-3", "db1.example");
        assert_eq!(check_node(&numbered, 3, "elsewhere"), Ok(()));
        assert!(check_node(&numbered, 1, "db1.example").unwrap_err().contains("that of node 3"));
        let named = made("db1", "db1.example");
        assert_eq!(check_node(&named, 1, "db1.example"), Ok(()));
        let why = check_node(&named, 1, "db2.example").unwrap_err();
        assert!(why.contains("of \"db1\", is neither that of node-1 nor for the host db2.example"), "{why}");
        assert!(check_node(&made("x", "10.0.0.1"), 1, "10.0.0.1").is_ok());
        assert!(check_node(&CertificateDer::from(vec![1, 2, 3]), 1, "db1.example").is_err());
    }

    #[test]
    fn the_owner_and_expiry_of_a_certificate_are_read() {
        let made = |name: Option<&str>, year: i32| {
            let mut params = CertificateParams::new(Vec::new()).unwrap();
            params.distinguished_name = rcgen::DistinguishedName::new();
            if let Some(name) = name {
                params.distinguished_name.push(DnType::OrganizationName, "Acme");
                params.distinguished_name.push(DnType::CommonName, name);
            }
            params.not_after = date_time_ymd(year, 2, 3);
            params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
        };
        for (name, year) in [(Some("alice"), 2031), (Some("Ünal"), 2077), (None, 1999)] {
            let certificate = made(name, year);
            assert_eq!(common_name(&certificate).as_deref(), name);
            assert_eq!(last_day(&certificate).unwrap(), format!("{year}-02-03"));
            assert_eq!(expires_s(&certificate).unwrap(), date_time_ymd(year, 2, 3).unix_timestamp() as u64);
            for length in 0..certificate.len() {
                let _ = (common_name(&certificate[..length]), expires_s(&certificate[..length]));
            }
        }
    }
}
