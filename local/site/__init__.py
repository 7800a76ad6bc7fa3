"""Built-in web site: pages to index, and the expected result of each."""
