//! Branding of pages and mails: product name, logo, accent color, support address and language. All values are checked at
//! startup, so that text stays readable and links work.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use service::config::Variable;
use url::Url;

use crate::texts::Language;

service::variables! {
    /// Branding of pages and mails.
    #[derive(Clone, Debug)]
    pub(crate) struct Branding {
        /// Name of the product on pages and in mails.
        pub(crate) product: String =
            Variable::new("SVC_PRODUCT_NAME", "1 to 60 characters").default("svc").required_with(product_name),
        /// Logo on the pages, shown up to 40 pixels high and 224 pixels wide next to the product name.
        pub(crate) logo: Option<Logo> =
            Variable::new("SVC_LOGO_FILE", "SVG or PNG file, up to 256 KiB").optional_with(|path| Logo::read(Path::new(path))),
        /// Logo on dark backgrounds, in place of `SVC_LOGO_FILE`.
        pub(crate) logo_dark: Option<Logo> =
            Variable::new("SVC_LOGO_DARK_FILE", "SVG or PNG file, up to 256 KiB").optional_with(|path| Logo::read(Path::new(path))),
        /// Where people use the product: pages link to it when their task is done.
        pub(crate) app_url: Option<Url> = Variable::new("SVC_APP_URL", "`https` URL").optional_with(web_address),
        /// Color of buttons and links on pages and in mails. Dark backgrounds use a lighter shade of it.
        pub(crate) accent: Accent =
            Variable::new("SVC_ACCENT_COLOR", "`#rrggbb`, dark enough for white text").default("#1d4ed8").required(),
        /// Where people get help: on every page and in every mail.
        pub(crate) support: Option<Support> =
            Variable::new("SVC_SUPPORT_ADDRESS", "e-mail address or `https` URL").optional(),
        /// Whether mails show the `svc` command with the same effect as their link.
        pub(crate) mail_commands: bool = Variable::new("SVC_MAIL_COMMANDS", "`on` or `off`")
            .default("on")
            .one_of([("on", true), ("off", false)]),
        /// Language of mails, and of pages for browsers that accept no shipped language.
        pub(crate) language: Language = Variable::new("SVC_LANGUAGE", "`en` or `de`").default("en").required(),
    }
}

fn web_address(text: &str) -> Result<Url, &'static str> {
    text.parse().ok().filter(|url: &Url| url.scheme() == "https").ok_or("not an https URL")
}

fn product_name(text: &str) -> Result<String, String> {
    contract::names::check(text, 60).map(str::to_owned)
}

/// An image that pages show.
#[derive(Clone)]
pub(crate) struct Logo {
    pub(crate) media_type: &'static str,
    pub(crate) content: Vec<u8>,
}

impl fmt::Debug for Logo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Logo({}, {} bytes)", self.media_type, self.content.len())
    }
}

impl Logo {
    const MAX_BYTES: usize = 256 * 1024;

    fn read(path: &Path) -> Result<Self, String> {
        let content = std::fs::read(path).map_err(|error| error.to_string())?;
        if content.len() > Self::MAX_BYTES {
            return Err(format!(
                "the file has {} bytes, at most {} are allowed",
                content.len(),
                Self::MAX_BYTES
            ));
        }
        let media_type = if content.starts_with(b"\x89PNG\r\n\x1a\n") {
            "image/png"
        } else if content.windows(4).any(|bytes| bytes == b"<svg") {
            "image/svg+xml"
        } else {
            return Err("the file is neither SVG nor PNG".to_owned());
        };
        Ok(Self { media_type, content })
    }
}

/// Where people get help.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Support {
    Mail(lettre::Address),
    Web(Url),
}

impl Support {
    /// Returns the target of a link.
    pub(crate) fn link(&self) -> String {
        match self {
            Self::Mail(address) => format!("mailto:{address}"),
            Self::Web(url) => url.to_string(),
        }
    }

    /// Returns the complete address, which mail programs make a link in plain text.
    pub(crate) fn address(&self) -> String {
        match self {
            Self::Mail(address) => address.to_string(),
            Self::Web(url) => url.to_string(),
        }
    }
}

impl fmt::Display for Support {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mail(address) => address.fmt(f),
            Self::Web(url) => f.write_str(url.as_str().trim_start_matches("https://").trim_end_matches('/')),
        }
    }
}

impl FromStr for Support {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Ok(address) = text.parse() {
            return Ok(Self::Mail(address));
        }
        web_address(text).map(Self::Web).map_err(|_| "neither an e-mail address nor an https URL")
    }
}

/// A color in sRGB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Color([u8; 3]);

/// The lightest and the darkest background behind text in the light and in the dark scheme (`style.css`).
const LIGHT_BACKGROUND: Color = Color([0xf6, 0xf7, 0xf9]);
const DARK_BACKGROUND: Color = Color([0x1b, 0x20, 0x29]);
/// Minimum contrast of text (WCAG 2.2, section 1.4.3).
const MIN_CONTRAST: f64 = 4.5;
/// Contrast of the accent color in the dark scheme.
const DARK_CONTRAST: f64 = 7.0;

impl Color {
    /// Returns the contrast ratio, 1 to 21 (WCAG 2.2).
    fn contrast(self, other: Self) -> f64 {
        let (a, b) = (self.luminance(), other.luminance());
        (a.max(b) + 0.05) / (a.min(b) + 0.05)
    }

    fn luminance(self) -> f64 {
        let [red, green, blue] = self.0.map(|channel| {
            let value = f64::from(channel) / 255.0;
            if value <= 0.040_45 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
        });
        0.2126 * red + 0.7152 * green + 0.0722 * blue
    }

    /// Mixes the color with white, in percent.
    fn lightened(self, percent: u16) -> Self {
        let mix = |channel: u8| (u16::from(channel) * (100 - percent) + 255 * percent) / 100;
        Self(self.0.map(|channel| u8::try_from(mix(channel)).unwrap_or(u8::MAX)))
    }
}

impl fmt::Display for Color {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [red, green, blue] = self.0;
        write!(f, "#{red:02x}{green:02x}{blue:02x}")
    }
}

impl FromStr for Color {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let digits =
            text.strip_prefix('#').filter(|digits| digits.len() == 6).ok_or("not in the form #rrggbb")?;
        let bytes = data_encoding::HEXLOWER_PERMISSIVE.decode(digits.as_bytes()).ok();
        bytes.and_then(|bytes| bytes.try_into().ok()).map(Self).ok_or("not in the form #rrggbb")
    }
}

/// The accent color of the light and of the dark scheme. Text on it is white and almost black.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Accent {
    pub(crate) light: Color,
    pub(crate) dark: Color,
}

impl FromStr for Accent {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let light: Color = text.parse()?;
        let contrast = light.contrast(LIGHT_BACKGROUND);
        if contrast < MIN_CONTRAST {
            return Err(format!(
                "its contrast with a light background is {contrast:.1}, but readable text needs {MIN_CONTRAST}; use a darker color"
            ));
        }
        let shades = (0..=100).map(|percent| light.lightened(percent));
        let dark = shades.into_iter().find(|shade| shade.contrast(DARK_BACKGROUND) >= DARK_CONTRAST);
        Ok(Self { light, dark: dark.unwrap_or(Color([0xff; 3])) })
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use proptest::prelude::*;
    use service::config::{Environment, Variables as _};

    use super::*;

    fn load(name: &'static str, value: &str) -> Result<Branding, String> {
        Branding::load(&Environment::from_pairs([(name, value)])).map_err(|errors| errors.0.join("\n"))
    }

    fn file(content: &[u8]) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(content).unwrap();
        file
    }

    #[test]
    fn an_accent_color_without_contrast_is_rejected_with_the_reason() {
        assert_eq!(
            load("SVC_ACCENT_COLOR", "#ffdd00").unwrap_err(),
            "SVC_ACCENT_COLOR=#ffdd00: its contrast with a light background is 1.3, but readable text needs 4.5; use a darker \
                color (expected `#rrggbb`, dark enough for white text)"
        );
        for malformed in ["blue", "#12345", "#12345g", "123456", "#éé12"] {
            assert!(load("SVC_ACCENT_COLOR", malformed).unwrap_err().contains("#rrggbb"), "{malformed}");
        }
        assert_eq!(load("SVC_ACCENT_COLOR", "#7A1F5C").unwrap().accent.light.to_string(), "#7a1f5c");
    }

    proptest! {
        #[test]
        fn every_accepted_accent_color_is_readable_in_both_schemes(rgb: [u8; 3]) {
            let Ok(accent) = Color(rgb).to_string().parse::<Accent>() else { return Ok(()) };
            prop_assert!(accent.light.contrast(Color([0xff; 3])) >= MIN_CONTRAST);
            // Text on the accent color of the dark scheme (`--on-accent` in `style.css`).
            prop_assert!(accent.dark.contrast(Color([0x0d, 0x12, 0x20])) >= MIN_CONTRAST);
        }
    }

    #[test]
    fn a_logo_is_an_svg_or_png_file() {
        for (content, media_type) in [
            (b"<?xml version=\"1.0\"?><svg/>".as_slice(), "image/svg+xml"),
            (b"\x89PNG\r\n\x1a\n...", "image/png"),
        ] {
            let file = file(content);
            let logo = load("SVC_LOGO_FILE", file.path().to_str().unwrap()).unwrap().logo.unwrap();
            assert_eq!(logo.media_type, media_type);
        }
        for (content, error) in
            [(vec![b'x'; 10], "neither SVG nor PNG"), (vec![b'x'; 300_000], "at most 262144")]
        {
            let file = file(&content);
            let errors = load("SVC_LOGO_FILE", file.path().to_str().unwrap()).unwrap_err();
            assert!(errors.contains(error), "{errors}");
        }
        assert!(load("SVC_LOGO_FILE", "/missing").unwrap_err().contains("No such file"));
    }

    #[test]
    fn a_support_address_is_an_email_address_or_an_https_url() {
        for (text, link, shown) in [
            ("help@acme.example", "mailto:help@acme.example", "help@acme.example"),
            ("https://help.acme.example/", "https://help.acme.example/", "help.acme.example"),
        ] {
            let support = load("SVC_SUPPORT_ADDRESS", text).unwrap().support.unwrap();
            assert_eq!((support.link().as_str(), support.to_string().as_str()), (link, shown));
        }
        for invalid in ["http://help.acme.example", "javascript:alert(1)", "help"] {
            assert!(load("SVC_SUPPORT_ADDRESS", invalid).is_err(), "{invalid}");
        }
    }

    #[test]
    fn the_address_of_the_product_is_an_https_url() {
        let branding = load("SVC_APP_URL", "https://app.acme.example/start").unwrap();
        assert_eq!(branding.app_url.unwrap().as_str(), "https://app.acme.example/start");
        for invalid in ["http://app.acme.example", "javascript:alert(1)", "app.acme.example"] {
            assert!(load("SVC_APP_URL", invalid).is_err(), "{invalid}");
        }
    }

    #[test]
    fn product_name_and_language_are_checked() {
        assert_eq!(load("SVC_PRODUCT_NAME", " Acme Cloud ").unwrap().product, "Acme Cloud");
        for invalid in [" ", "a\nb", "a\u{202e}b", &"x".repeat(61)] {
            assert!(load("SVC_PRODUCT_NAME", invalid).is_err(), "{invalid}");
        }
        assert_eq!(load("SVC_LANGUAGE", "de").unwrap().language, Language::German);
        assert!(load("SVC_LANGUAGE", "fr").is_err());
    }
}
