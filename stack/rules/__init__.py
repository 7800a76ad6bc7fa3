"""Our own cfn-lint rules: what AWS accepts and this system could not live with."""
