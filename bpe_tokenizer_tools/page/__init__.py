"""One page that tokenises as you type, in any browser, with no network."""
