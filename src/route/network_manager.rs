//! What NetworkManager says about a connection, through `nmcli`.

use std::net::IpAddr;

use super::error::Error;
use super::program;

/// Never looked up in PATH, which a caller could have set.
const NMCLI: &str = "/usr/bin/nmcli";
/// The manual's code for a connection, device or access point that does not exist.
const DOES_NOT_EXIST: i32 = 10;
const FIELDS: &str = "GENERAL.STATE,GENERAL.DEVICES,GENERAL.VPN,IP4.ADDRESS,IP6.ADDRESS";

/// A connection of NetworkManager.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Connection {
    /// Whether it is fully up.
    pub activated: bool,
    /// Whether a VPN plugin runs it.
    pub vpn: bool,
    /// The devices that it is active on; for a plugin's connection the one below the tunnel.
    pub devices: Vec<String>,
    /// The addresses that it configured.
    pub addresses: Vec<IpAddr>,
}

/// Asks NetworkManager about a connection; none when it has none with this UUID.
pub(super) fn ask(uuid: &str) -> Result<Option<Connection>, Error> {
    // `nmcli` would take another word as a name or complete it; a UUID is nothing but this.
    if uuid.len() != 36 || !uuid.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-') {
        return Err(Error::Program { program: NMCLI, problem: format!("`{uuid}` is not a UUID") });
    }
    let arguments = ["--terse", "--escape", "yes", "--fields", FIELDS, "connection", "show", "uuid", uuid];
    let output = program::run(NMCLI, &arguments)?;
    match output.code {
        Some(0) => Ok(Some(parse_connection(&output.text))),
        Some(DOES_NOT_EXIST) => Ok(None),
        Some(code) => Err(Error::Program { program: NMCLI, problem: format!("ended with {code}") }),
        None => Err(Error::Program { program: NMCLI, problem: "was killed".to_owned() }),
    }
}

/// Reads the terse fields of `nmcli connection show uuid UUID`; one that is not active has none.
pub fn parse_connection(text: &str) -> Connection {
    let mut connection = Connection::default();
    for line in text.lines() {
        let Some((field, value)) = line.split_once(':') else { continue };
        let value = unescaped(value);
        match field.split('[').next() {
            Some("GENERAL.STATE") => connection.activated = value == "activated",
            Some("GENERAL.VPN") => connection.vpn = value == "yes",
            Some("GENERAL.DEVICES") => {
                let devices = value.split(',').filter(|device| !device.is_empty());
                connection.devices.extend(devices.map(str::to_owned));
            }
            Some("IP4.ADDRESS" | "IP6.ADDRESS") => {
                let address: Option<IpAddr> =
                    value.split('/').next().and_then(|address| address.trim().parse().ok());
                // An address that cannot be read can only keep the evidence from holding.
                connection.addresses.extend(address);
            }
            _ => {}
        }
    }
    connection
}

/// Terse values have `\` before `:` and `\`.
fn unescaped(value: &str) -> String {
    let mut chars = value.chars();
    let mut text = String::with_capacity(value.len());
    while let Some(char) = chars.next() {
        text.extend(if char == '\\' { chars.next() } else { Some(char) });
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What nmcli 1.42.4 said about a tun connection that it had just brought up.
    const ACTIVE: &str = "GENERAL.STATE:activated\nGENERAL.DEVICES:tun5\nGENERAL.VPN:no\nIP4.ADDRESS[1]:10.8.0.2/24\n\
        IP6.ADDRESS[1]:fe80::5394:387e:9b72:427a/64\nIP6.ADDRESS[2]:fd00:8::2/64\n";

    #[test]
    fn an_active_connection_tells_its_devices_and_addresses() {
        let connection = parse_connection(ACTIVE);
        let addresses = ["10.8.0.2", "fe80::5394:387e:9b72:427a", "fd00:8::2"];
        let expected = Connection {
            activated: true,
            vpn: false,
            devices: vec!["tun5".to_owned()],
            addresses: addresses.map(|address| address.parse().unwrap()).to_vec(),
        };
        assert_eq!(connection, expected);
        // Other versions escape the colons inside a value.
        let escaped = ACTIVE.replace("fd00:8::2", "fd00\\:8\\:\\:2");
        assert_eq!(parse_connection(&escaped), expected);
    }

    #[test]
    fn a_connection_that_is_not_fully_up_is_not_active() {
        // nmcli 1.42.4 prints nothing, with code 0, for one that is down.
        assert_eq!(parse_connection(""), Connection::default());
        for state in ["activating", "deactivating", "activated (external)", ""] {
            assert!(!parse_connection(&ACTIVE.replace("activated", state)).activated, "{state}");
        }
        assert!(parse_connection(&ACTIVE.replace("VPN:no", "VPN:yes")).vpn);
    }

    #[test]
    fn only_a_uuid_is_given_to_the_program() {
        for word in ["office", "--help", "3f3c9d8e-8a67-4c3e-9c3c-6f3d1d1f0a1 ", ""] {
            assert!(matches!(ask(word), Err(Error::Program { .. })), "{word}");
        }
    }
}
