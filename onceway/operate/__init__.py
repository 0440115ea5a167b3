"""What operators ask of running routers and tell them: status, metrics, pages, actions, reloads."""
