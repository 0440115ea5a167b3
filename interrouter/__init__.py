"""The network between routers: trunks to neighbours, link states and paths, reliable streams between routers."""
