# Routemaster's own client and drain, which are gems. The client answers each call with a line of JSON: what it returned,
# what its command line printed, or {"error": …}. A call is a method of Routemaster::Client, or "rtm" and its arguments.
#
#   routemaster.rb client HOST:PORT '[TOKEN, NAME, ARGUMENTS, KEYWORDS]' …
#   routemaster.rb drain PORT CERTIFICATE UUID      prints "listening", then each batch that it takes
require 'json'
require 'stringio'

def drain(port, certificate, uuid)
  require 'rack'
  require 'webrick/https'
  require 'routemaster/drain/basic'
  app = Routemaster::Drain::Basic.new(uuid: [uuid])
  app.on(:events_received) { |events| puts JSON.dump(events) }
  pem = File.read(certificate)
  Rack::Handler::WEBrick.run(
    app, Port: Integer(port), BindAddress: '127.0.0.1', AccessLog: [], Logger: WEBrick::Log.new($stderr),
    SSLEnable: true, SSLCertificate: OpenSSL::X509::Certificate.new(pem), SSLPrivateKey: OpenSSL::PKey.read(pem),
    StartCallback: -> { puts 'listening' }
  )
end

def call(host, token, name, arguments = [], keywords = {})
  Routemaster::Client::Connection.reset_connection
  if name == 'rtm'
    out = StringIO.new
    Routemaster::CLI::Toplevel.new(stdout: out, stderr: out).run([*arguments, '-b', host, '-t', token])
    return out.string
  end
  client = Routemaster::Client.configure do |config|
    config.url = "https://#{host}"
    config.uuid = token
    config.timeout = 60
    config.verify_ssl = false # the certificate is a test's own
  end
  found = client.public_send(name, *arguments, **keywords.transform_keys(&:to_sym))
  found.is_a?(Array) ? found.map { |each| each.respond_to?(:attributes) ? each.attributes : each } : found
rescue Routemaster::CLI::Exit, StandardError => e
  { error: "#{e.class}: #{e.message}#{out&.string}" }
end

$stdout.sync = true
case ARGV.shift
when 'drain' then drain(*ARGV)
when 'client'
  require 'routemaster/client'
  require 'routemaster/cli/top_level'
  host = ARGV.shift
  ARGV.each { |each| puts JSON.dump(call(host, *JSON.parse(each))) }
end
