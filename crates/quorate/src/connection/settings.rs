//! What a client is told about the cluster: by flags, by the environment, and by a file of its own. For each setting the
//! first of these counts, each setting by itself. Where a node's file is named, it has all the rest, and what comes after it is
//! not read: the password of another cluster is not sent to that node.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use serde::Deserialize;

/// Settings from one place, or from several.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Settings {
    pub(super) addr: Addresses,
    pub(super) user: Option<String>,
    pub(super) password_file: Option<PathBuf>,
    pub(super) config: Option<PathBuf>,
    pub(super) tls: Option<bool>,
    pub(super) cacert: Option<PathBuf>,
    pub(super) cert: Option<PathBuf>,
    pub(super) key: Option<PathBuf>,
}

/// One address or several, as people write them into a file.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged, expecting = "addr is an address in quotation marks, or a list of them")]
pub(super) enum Addresses {
    One(String),
    Several(Vec<String>),
}

impl Default for Addresses {
    fn default() -> Addresses {
        Addresses::Several(Vec::new())
    }
}

impl Addresses {
    pub(super) fn list(&self) -> Vec<String> {
        let texts = match self {
            Addresses::One(text) => std::slice::from_ref(text),
            Addresses::Several(texts) => texts,
        };
        texts.iter().flat_map(|text| text.split(',')).map(|text| text.trim().to_owned()).collect()
    }
}

/// The variable that names the client's file.
const FILE_VARIABLE: &str = "QUORATE_CLIENT_CONFIG";

impl Settings {
    /// Completes what the flags say. `variable` is the environment's value of a name.
    ///
    /// # Errors
    /// A value or the client's file cannot be understood, or something is missing that must go together.
    pub(super) fn complete(self, variable: impl Fn(&str) -> Option<OsString>) -> Result<Settings> {
        let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
        let mut all = self;
        if all.config.is_none() {
            all = all.or(Settings::of_environment(&variable)?);
        }
        if all.config.is_none()
            && let Some(file) = Settings::of_file(&variable)?
        {
            all = all.or(file);
        }
        ensure!(
            all.user.is_none() || all.password_file.is_some(),
            "a user needs a password: name its file with --password-file or QUORATE_PASSWORD_FILE"
        );
        ensure!(
            all.cert.is_some() == all.key.is_some(),
            "--cert and --key (QUORATE_CERT and QUORATE_KEY) go together"
        );
        Ok(all)
    }

    /// These settings, and of another place those that these lack.
    fn or(self, other: Settings) -> Settings {
        Settings {
            addr: if self.addr.list().is_empty() { other.addr } else { self.addr },
            user: self.user.or(other.user),
            password_file: self.password_file.or(other.password_file),
            config: self.config.or(other.config),
            tls: self.tls.or(other.tls),
            cacert: self.cacert.or(other.cacert),
            cert: self.cert.or(other.cert),
            key: self.key.or(other.key),
        }
    }

    fn of_environment(variable: &impl Fn(&str) -> Option<OsString>) -> Result<Settings> {
        let text = |name: &str| {
            let value = variable(name).map(OsString::into_string).transpose();
            value.map_err(|_| anyhow::anyhow!("{name} is not text"))
        };
        let tls = match text("QUORATE_TLS")?.as_deref() {
            None => None,
            Some("1" | "true" | "yes" | "on") => Some(true),
            Some("0" | "false" | "no" | "off") => Some(false),
            Some(other) => bail!("QUORATE_TLS is true or false, and not {other}"),
        };
        Ok(Settings {
            addr: text("QUORATE_ADDR")?.map_or_else(Addresses::default, Addresses::One),
            user: text("QUORATE_USER")?,
            password_file: variable("QUORATE_PASSWORD_FILE").map(PathBuf::from),
            config: variable("QUORATE_CONFIG").map(PathBuf::from),
            tls,
            cacert: variable("QUORATE_CACERT").map(PathBuf::from),
            cert: variable("QUORATE_CERT").map(PathBuf::from),
            key: variable("QUORATE_KEY").map(PathBuf::from),
        })
    }

    /// The settings of the client's file. If it is not named, it need not exist.
    fn of_file(variable: &impl Fn(&str) -> Option<OsString>) -> Result<Option<Settings>> {
        let folder = || {
            let own = variable("XDG_CONFIG_HOME").map(PathBuf::from);
            own.or_else(|| Some(PathBuf::from(variable("HOME")?).join(".config")))
        };
        let named = variable(FILE_VARIABLE).map(PathBuf::from);
        let Some(file) = named.clone().or_else(|| Some(folder()?.join("quorate").join("client.toml"))) else {
            return Ok(None);
        };
        if named.is_none() && !file.exists() {
            return Ok(None);
        }
        let text = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let read = toml::from_str(&text).map_err(|error| server::config::located(&text, &error));
        let found: Settings = read.with_context(|| {
            format!(
                "{} is not the file of a client (addr, user, password_file, config, tls, cacert, cert, key)",
                file.display()
            )
        })?;
        Ok(Some(found.relative_to(file.parent().unwrap_or(Path::new("")))))
    }

    /// The files that a file names are beside it, unless it says more.
    fn relative_to(self, folder: &Path) -> Settings {
        let place = |file: Option<PathBuf>| file.map(|file| folder.join(file));
        Settings {
            password_file: place(self.password_file),
            config: place(self.config),
            cacert: place(self.cacert),
            cert: place(self.cert),
            key: place(self.key),
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completed(flags: Settings, variables: &[(&str, &str)]) -> Result<Settings> {
        flags.complete(|name| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| OsString::from(value))
        })
    }

    fn addr(text: &str) -> Addresses {
        Addresses::One(text.to_owned())
    }

    #[test]
    fn a_flag_counts_before_the_environment_and_that_before_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("client.toml");
        fs::write(&file, "addr = [\"f:1\", \"f:2\"]\nuser = \"f\"\npassword_file = \"pw\"\ncacert = \"/f.crt\"\ntls = true\n")
            .unwrap();
        let named = (FILE_VARIABLE, file.to_str().unwrap());

        let found = completed(Settings::default(), &[named]).unwrap();
        assert_eq!(found.addr.list(), ["f:1", "f:2"]);
        assert_eq!((found.user.as_deref(), found.tls), (Some("f"), Some(true)));
        assert_eq!(found.password_file, Some(folder.path().join("pw")), "beside the file");
        assert_eq!(found.cacert, Some("/f.crt".into()));

        let environment =
            [named, ("QUORATE_ADDR", "e:1,e:2"), ("QUORATE_USER", "e"), ("QUORATE_TLS", "false")];
        let found = completed(Settings::default(), &environment).unwrap();
        assert_eq!((found.addr.list(), found.user.as_deref()), (vec!["e:1".into(), "e:2".into()], Some("e")));
        assert_eq!((found.tls, found.cacert), (Some(false), Some("/f.crt".into())), "each setting by itself");

        let flags = Settings { addr: addr("a:1"), cacert: Some("a.crt".into()), ..Settings::default() };
        let found = completed(flags, &environment).unwrap();
        assert_eq!((found.addr.list(), found.user.as_deref()), (vec!["a:1".into()], Some("e")));
        assert_eq!(found.cacert, Some("a.crt".into()));
        let empty = [("QUORATE_ADDR", ""), named];
        assert_eq!(
            completed(Settings::default(), &empty).unwrap().addr.list(),
            ["f:1", "f:2"],
            "empty is not set"
        );
    }

    #[test]
    fn after_a_nodes_file_nothing_is_read() {
        let variables =
            [("QUORATE_ADDR", "e:1"), ("QUORATE_PASSWORD_FILE", "pw"), (FILE_VARIABLE, "/nowhere")];
        let flags = Settings { config: Some("node.toml".into()), ..Settings::default() };
        assert_eq!(completed(flags.clone(), &variables).unwrap(), flags);
        let variables = [("QUORATE_CONFIG", "node.toml"), (FILE_VARIABLE, "/nowhere")];
        assert_eq!(completed(Settings::default(), &variables).unwrap(), flags);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("client.toml");
        fs::write(&file, "adress = \"a:1\"\n").unwrap();
        let error = |variables: &[(&str, &str)]| {
            format!("{:#}", completed(Settings::default(), variables).unwrap_err())
        };
        let named = [(FILE_VARIABLE, file.to_str().unwrap())];
        let unknown = error(&named);
        assert!(unknown.contains("line 1, key adress: there is no setting 'adress'; there are"), "{unknown}");
        fs::write(&file, "user = \"a\"\ntls = \"yes\"\n").unwrap();
        let wrong = error(&named);
        assert!(wrong.contains("line 2, key tls") && wrong.contains("true or false"), "{wrong}");
        assert!(error(&[(FILE_VARIABLE, "/nowhere/at/all")]).contains("cannot read /nowhere/at/all"));
        assert!(error(&[("QUORATE_USER", "ann")]).contains("QUORATE_PASSWORD_FILE"));
        assert!(error(&[("QUORATE_CERT", "c")]).contains("QUORATE_KEY"));
        assert!(error(&[("QUORATE_TLS", "maybe")]).contains("true or false"));
        // Without a name the file need not exist.
        let home = [("HOME", folder.path().to_str().unwrap())];
        assert_eq!(completed(Settings::default(), &home).unwrap(), Settings::default());
        fs::create_dir_all(folder.path().join(".config/quorate")).unwrap();
        fs::write(folder.path().join(".config/quorate/client.toml"), "addr = \"h:1\"\n").unwrap();
        assert_eq!(completed(Settings::default(), &home).unwrap().addr, addr("h:1"));
    }
}
