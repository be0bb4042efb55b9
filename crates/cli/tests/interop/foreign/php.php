<?php
// The PHP peers for ../peer.rs: phpredis and predis. They have no lock, so this file has the recipe SET NX PX and
// compare-and-delete.
[, $client, $port] = $argv;

const RELEASE = 'if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) else return 0 end';

if ($client === 'phpredis') {
    $redis = new Redis();
    $redis->connect('127.0.0.1', (int) $port);
    $version = phpversion('redis');
    $set = fn ($key, $token, $ttl) => (bool) $redis->set($key, $token, $ttl ? ['nx', 'px' => $ttl] : ['nx']);
    $delete = fn ($key, $token) => $redis->eval(RELEASE, [$key, $token], 1) === 1;
} else {
    require 'Predis/Autoloader.php';
    Predis\Autoloader::register();
    $redis = new Predis\Client(['host' => '127.0.0.1', 'port' => (int) $port, 'read_write_timeout' => 0]);
    $version = Predis\Client::VERSION;
    $set = fn ($key, $token, $ttl) => (bool) ($ttl ? $redis->set($key, $token, 'PX', $ttl, 'NX') : $redis->set($key, $token, 'NX'));
    $delete = fn ($key, $token) => $redis->eval(RELEASE, 1, $key, $token) === 1;
}

$token = $held = null;
$take = function ($name, $ttl, $wait) use ($set, &$token, &$held) {
    $token = bin2hex(random_bytes(16));
    $held = $name;
    while (!$set($name, $token, $ttl)) {
        if (!$wait) {
            return false;
        }
        usleep(10000);
    }
    return true;
};
$release = function () use ($delete, &$token, &$held) {
    return $delete($held, $token);
};
// The counter: reads, adds one and writes, in separate commands.
$count = function ($name, $ttl, $turns, $who) use ($redis, $take, $release) {
    for ($turn = 1; $turn <= $turns; $turn++) {
        $take($name, $ttl, true);
        [$count, $last, $changes] = $redis->mget(['count', 'last', 'changes']);
        $redis->mset(['count' => (int) $count + 1, 'last' => $who, 'changes' => (int) $changes + ($last === $who ? 0 : 1), "by:$who" => $turn]);
        if (!$release()) {
            fwrite(STDERR, "lost while it counted\n");
            exit(1);
        }
        usleep(random_int(1000, 4000));
    }
};

echo "ready $version\n";
while (($line = fgets(STDIN)) !== false) {
    $words = explode(' ', trim($line));
    switch ($words[0]) {
        case 'release':
            echo $release() ? "released\n" : "lost\n";
            break;
        case 'count':
            $count($words[1], (int) $words[2], (int) $words[3], $words[4]);
            echo "counted\n";
            break;
        default:
            echo $take($words[1], (int) $words[2], $words[0] === 'wait') ? "held\n" : "busy\n";
    }
}
