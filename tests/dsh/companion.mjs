// A second plugin for the tests: it cancels a turn from inside, and puts a message of its own into a session.
import { randomUUID } from 'node:crypto';

export const name = 'companion';
export const inject = ['tools', 'agents', 'sessions'];

export function apply(ctx) {
  ctx.tools.register({
    name: 'companion_cancel',
    description: 'Cancels the turn that calls it.',
    parameters: { type: 'object', properties: {} },
    output: { schema: {}, render: () => [{ type: 'text', text: 'cancelled' }] },
    async execute(_args, exec) {
      exec.agent.cancel({ kind: 'user' });
      await new Promise((resolve) => setTimeout(resolve, 200));
      return {};
    },
  });
  ctx.on('agent/pre-step', async (step, next) => {
    const decision = await next();
    const { version } = step.agent.session.header;
    if (decision.kind !== 'enter' || step.step !== 1) return decision;
    const source = version === 0 ? { kind: 'plugin', plugin: name } : { kind: name };
    const content = [{ type: 'text', text: 'The companion says: the secret colour is vermilion.' }];
    return { ...decision, messages: [...decision.messages, { id: randomUUID(), role: 'user', content, source }] };
  });
}
