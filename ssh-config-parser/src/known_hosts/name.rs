//! The name under which a host is looked up.

/// The port of which names carry no mark.
const PORT_DEFAULT: u16 = 22;

/// The name under which a host is looked up: the alias, or the host with its port in brackets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LookupName {
    text: String,
    host: String,
    with_port: bool,
}

impl LookupName {
    /// Makes the name of `hostname` at `port`; an `alias` replaces it and never carries a port.
    ///
    /// All of it is put in lower case (ASCII).
    pub fn new(hostname: &str, port: u16, alias: Option<&str>) -> Self {
        let host = alias.unwrap_or(hostname).to_ascii_lowercase();
        let with_port = alias.is_none() && port != PORT_DEFAULT;
        let text = if with_port { format!("[{host}]:{port}") } else { host.clone() };
        Self { text, host, with_port }
    }

    /// Gives the text that lines are compared with.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Gives the host or alias without a port: what a certificate's principals are compared with.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Gives the name without its port, for the second look of a host that listens elsewhere than usual.
    pub(super) fn without_port(&self) -> Option<LookupName> {
        self.with_port.then(|| LookupName {
            text: self.host.clone(),
            host: self.host.clone(),
            with_port: false,
        })
    }
}
