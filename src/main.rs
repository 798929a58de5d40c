//! placeholder
use std::process::ExitCode;

fn main() -> ExitCode {
    #[cfg(feature = "demo")]
    if let Some(code) = towline::demo::batch::called() {
        return code;
    }
    ExitCode::SUCCESS
}
